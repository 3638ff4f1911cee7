module github.com/tickwheel/tickwheel

go 1.26

require (
	github.com/emirpasic/gods v1.18.1 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
)
