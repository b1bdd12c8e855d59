"""Storage at URLs: objects of S3, GCS, Azure and https by obstore, all else by fsspec; settings, retries, and many transfers at once."""
