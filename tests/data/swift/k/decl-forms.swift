#!/usr/bin/env swift
int a, b = 2, c;
a = 1; c = a + b;;
int d[] = [1:5];
int e[] = [], g[];
float f[] = [1, 2.5];
string s="x"; boolean t=true; float u=1e3, v=.5, w=1.;
trace(a,b,c,length(d),d[4],length(e),f[0],u,v,w,s,t);
{ int a2 = 3; trace(a2); }
{ }
//> SwiftScript trace: 1, 2, 3, 5, 5, 0, 1.0, 1000.0, 0.5, 1.0, x, true
//> SwiftScript trace: 3
