// names that resemble keywords
int in_ = 1; int file1 = 2; int foreach1 = 3; int if_ = 4; int deep = 5; int main1 = 6; int E2 = 7; trace(in_, file1, foreach1, if_, deep, main1, E2);
int until = 1; int wait1 = 2; trace(until, wait1);
//> trace: 1,2,3,4,5,6,7
//> trace: 1,2
