package page

import (
	"bufio"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var picture = flag.String("picture", "", "write the picture of the README to this `file`; it takes a minute and a half")

// The picture shows the example 75 s after its start, when the page has been open for
// 70 s. (Every 10 s the example has a burst, beside which everything else is small.)
// Without -picture the tree stays as it is, and the test only sees that the example runs.
func TestPicture(t *testing.T) {
	tb := newTab(t)
	program := filepath.Join(t.TempDir(), "live")
	build := exec.Command("go", "build", "-o", program, "./examples/live")
	build.Dir = "../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	live := exec.Command(program, "-addr", "127.0.0.1:0", "-rate", "4000")
	stdout, err := live.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, live.Start())
	t.Cleanup(func() {
		live.Process.Signal(os.Interrupt)
		require.NoError(t, live.Wait())
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	url := strings.TrimSpace(strings.TrimPrefix(line, "open "))

	tb.resize(1280, 1200)
	tb.media("prefers-color-scheme:light")
	if *picture == "" {
		tb.open(url)
		tb.until(`document.querySelectorAll("#dial .ring").length === 3`)
		return
	}
	time.Sleep(5 * time.Second)
	tb.open(url)
	time.Sleep(70 * time.Second)
	// The moment: the finest hand has made a third of its turn, and the slots right before
	// it are filled. (If it has come round since the last event, those slots are not known.)
	tb.until(`(() => {
		const degrees = Number(document.querySelector("#dial .hand").parentNode.getAttribute("transform").match(/[\d.]+/)[0]);
		const next = Math.floor(degrees / 360 * 256) + 3;
		const slots = [...document.querySelectorAll("#dial .ring:first-child .slot")].slice(next, next + 12);
		return degrees > 60 && degrees < 130 && slots.filter((s) => s.hasAttribute("d")).length > 8;
	})()`)
	// It ends below the dial, so that it cuts no panel in two.
	tb.shoot(*picture, `$("dial-section").getBoundingClientRect().bottom + 12`)
}
