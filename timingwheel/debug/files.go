package debug

import (
	"embed"
	"net/http"
)

// The page is written by hand, without a framework and without a build step: the browser
// runs what is in these files.
//
//go:embed index.html page.css words.js tip.js dial.js charts.js page.js icon.svg
var files embed.FS

var fileTypes = map[string]string{
	"index.html": "text/html; charset=utf-8",
	"page.css":   "text/css; charset=utf-8",
	"words.js":   "text/javascript; charset=utf-8",
	"tip.js":     "text/javascript; charset=utf-8",
	"dial.js":    "text/javascript; charset=utf-8",
	"charts.js":  "text/javascript; charset=utf-8",
	"page.js":    "text/javascript; charset=utf-8",
	"icon.svg":   "image/svg+xml",
}

// serveFile serves one of the files of the page. They are the same for everyone. Texts
// of the URL, or of a wheel, get into the page by script, as text.
func serveFile(rw http.ResponseWriter, r *http.Request, name string) {
	contentType, ok := fileTypes[name]
	if !ok {
		http.Error(rw, "no such file", http.StatusNotFound)
		return
	}
	content, err := files.ReadFile(name)
	if err != nil {
		panic(err) // a name in fileTypes that is not embedded
	}
	rw.Header().Set("Content-Type", contentType)
	if r.Method == http.MethodGet {
		rw.Write(content)
	}
}
