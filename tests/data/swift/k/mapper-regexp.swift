//@ picture.gif data\n
type image;
app (image o) convert(image i) { cat @i stdout=@o; }
image i <"picture.gif">;
image o <regexp_mapper; source=@i, match="(.*)gif", transform="\\1jpg">;
o = convert(i);
//= picture.jpg data\n
