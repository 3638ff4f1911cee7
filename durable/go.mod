module github.com/tickwheel/tickwheel/durable

go 1.26.0

require (
	github.com/netresearch/go-cron v0.9.1
	github.com/stretchr/testify v1.12.1
	github.com/tickwheel/tickwheel v0.1.0
)

require (
	github.com/emirpasic/gods v1.18.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
