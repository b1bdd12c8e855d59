"""A grid search of scikit-learn on two nodes: make plug-joblib."""

import joblib
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

import amfs
import amfs.plugs.joblib

data, target = load_digits(return_X_y=True)
with amfs.Cluster(nodes=2, slots=1) as cluster, joblib.parallel_backend("amfs", cluster=cluster):
    search = GridSearchCV(SVC(), {"C": [0.1, 1, 10], "gamma": [0.0005, 0.001, 0.002]}, cv=3, n_jobs=-1).fit(data, target)
print(f"best: {search.best_params_}, score {search.best_score_:.3f}")
