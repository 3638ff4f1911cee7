package worker

import (
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// NewName returns a name that no other worker has had, and that says where it is: its
// host's name as far as it is of letters, digits and -, its process, when it began, and its
// label.
func NewName(now time.Time, label string) string {
	host, _ := os.Hostname() // "" is as good
	host = strings.Map(func(r rune) rune {
		if IsPlain(r) {
			return r
		}
		return '-'
	}, host)
	name := fmt.Sprintf("%s_%d_%s_%s", host[:min(len(host), 24)], os.Getpid(), strconv.FormatInt(now.UnixMilli(), 36), rand.Text()[:16])
	if label != "" {
		name += "_" + label
	}
	return name
}

// Name is what the name of a worker says.
type Name struct {
	Host    string
	Process int
	Began   time.Time
	Label   string
}

// ReadName reads what NewName has made. It returns the zero Name for any other text.
func ReadName(name string) (n Name) {
	part := strings.SplitN(name, "_", 5)
	if len(part) < 4 {
		return n
	}
	process, err := strconv.Atoi(part[1])
	began, wrong := strconv.ParseInt(part[2], 36, 64)
	if err == nil && wrong == nil {
		n = Name{part[0], process, time.UnixMilli(began), strings.Join(part[4:], "")}
	}
	return n
}

// IsPlain reports whether a character may be in the parts of a worker's name.
func IsPlain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-'
}
