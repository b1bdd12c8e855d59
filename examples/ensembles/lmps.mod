# The cheapest dispatch of a grid for one hour, with lines that have limits (DC power flow). The price at a bus is what one more MW there would cost:
# the dual value of the bus's balance. GNU MathProg, which is AMPL's language. The output has all that proves the answer optimal.

param hour, integer;
param penalty := 1000;          # of a MW that is not delivered

set buses;
param longitude {buses};
param latitude {buses};
param demand {buses};
param reference symbolic, in buses;

set units;
param bus {units} symbolic, in buses;
param offer {units};            # price of a MWh
param capacity {units};

set lines;
param head {lines} symbolic, in buses;
param tail {lines} symbolic, in buses;
param susceptance {lines};
param rating {lines};

var output {u in units} >= 0, <= capacity[u];
var missing {i in buses} >= 0, <= demand[i];
var angle {buses};
var flow {l in lines} >= -rating[l], <= rating[l];

minimize cost: sum {u in units} offer[u] * output[u] + penalty * sum {i in buses} missing[i];

subject to law {l in lines}: flow[l] - susceptance[l] * (angle[head[l]] - angle[tail[l]]) = 0;

subject to balance {i in buses}:
    sum {u in units: bus[u] = i} output[u] + missing[i] - sum {l in lines: head[l] = i} flow[l] + sum {l in lines: tail[l] = i} flow[l] = demand[i];

subject to anchor: angle[reference] = 0;

solve;

printf "hour,%d,cost,%.8f\n", hour, cost;
printf {i in buses} "bus,%s,%.4f,%.4f,%.6f,%.9f,%.9f,%.9f\n", i, longitude[i], latitude[i], demand[i], missing[i], angle[i], balance[i].dual;
printf {u in units} "unit,%s,%s,%.2f,%.6f,%.9f\n", u, bus[u], offer[u], capacity[u], output[u];
printf {l in lines} "line,%s,%s,%s,%.6f,%.6f,%.9f,%.9f\n", l, head[l], tail[l], susceptance[l], rating[l], flow[l], law[l].dual;

end;
