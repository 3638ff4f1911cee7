module github.com/tickwheel/tickwheel

go 1.26

require (
	github.com/emirpasic/gods v1.18.1
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
