module github.com/tickwheel/tickwheel

go 1.26.0

require (
	github.com/emirpasic/gods v1.18.1
	github.com/stretchr/testify v1.12.1
	golang.org/x/sys v0.41.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
