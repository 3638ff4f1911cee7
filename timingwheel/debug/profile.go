package debug

import (
	"net/http"
	"slices"
)

// serveProfile writes the profile of the wheel of that name. The name may be left out if there is
// one wheel only, since a profile is of one.
func (h *Handler) serveProfile(rw http.ResponseWriter, r *http.Request, name string) {
	wheels := h.list().wheels
	if name != "" {
		wheels = slices.DeleteFunc(wheels, func(w *wheel) bool { return w.name != name })
	}
	switch {
	case len(wheels) == 0:
		http.Error(rw, "no wheel of that name", http.StatusNotFound)
		return
	case len(wheels) > 1:
		http.Error(rw, "a profile is of one wheel: ?format=profile&wheel=name", http.StatusBadRequest)
		return
	case wheels[0].source.Stats().ProfileRate == 0:
		http.Error(rw, "this wheel has no profile: it was made without WithProfileRate", http.StatusNotFound)
		return
	}
	rw.Header().Set("Content-Type", "application/octet-stream")
	rw.Header().Set("Content-Disposition", `attachment; filename="timers.pb.gz"`)
	if r.Method == http.MethodGet {
		wheels[0].source.WriteProfile(rw)
	}
}
