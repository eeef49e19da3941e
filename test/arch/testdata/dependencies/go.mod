module example.test/planted

go 1.26

require github.com/lone/module/v3 v3.1.0

require (
	example.org/good v1.0.0
	example.org/neighbour v1.0.0
	github.com/unreasoned/module v0.1.0
	github.com/unreasoned/module/sub v0.1.0
	github.com/good/sub/v2 v2.0.0
	github.com/far/away v1.0.0 // indirect
)
