package admin

import (
	"embed"
	"net/http"
)

// The page is written by hand, without a framework and without a build step: the browser
// runs what is in these files. Texts of the URL, or of a job, get into the page by
// script, as text.
//
//go:embed page
var pageFiles embed.FS

// files are the files of the page, by the last part of the path: "" is the page itself.
var files = map[string]file{
	"":          newFile("index.html", "text/html; charset=utf-8"),
	"page.css":  newFile("page.css", "text/css; charset=utf-8"),
	"words.js":  newFile("words.js", "text/javascript; charset=utf-8"),
	"charts.js": newFile("charts.js", "text/javascript; charset=utf-8"),
	"ask.js":    newFile("ask.js", "text/javascript; charset=utf-8"),
	"jobs.js":   newFile("jobs.js", "text/javascript; charset=utf-8"),
	"page.js":   newFile("page.js", "text/javascript; charset=utf-8"),
	"icon.svg":  newFile("icon.svg", "image/svg+xml"),
}

type file struct {
	contentType string
	content     []byte
}

func newFile(name, contentType string) file {
	content, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err) // a name in files that is not embedded
	}
	return file{contentType, content}
}

// serve writes the file; net/http leaves its content out of the answer to HEAD.
func (f file) serve(w http.ResponseWriter) {
	w.Header().Set("Content-Type", f.contentType)
	_, _ = w.Write(f.content) // else nobody is there to be told
}
