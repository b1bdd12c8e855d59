# From the differences between neighbours to what is above the first image.
BEGIN { print 0, 0 }
{ above += $1; print NR, above }
