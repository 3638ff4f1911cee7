module github.com/tickwheel/tickwheel/checks

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.22.1
	github.com/jonboulle/clockwork v0.5.0
	github.com/stretchr/testify v1.12.1
	github.com/tickwheel/tickwheel v0.1.0
	github.com/tickwheel/tickwheel/durable v0.1.0
	github.com/tickwheel/tickwheel/timingwheel/debug v0.1.0
	golang.org/x/exp v0.0.0-20261014143641-f0251eb4aa3e
	golang.org/x/mod v0.42.0
	k8s.io/utils v0.0.0-20261023123148-ca04ba58ecab
)

require (
	github.com/emirpasic/gods v1.18.1 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/netresearch/go-cron v0.9.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
