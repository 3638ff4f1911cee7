package a

import . "github.com/tickwheel/tickwheel/dropin/time"

func zonesOfADot() {
	Local = UTC // want `Local of dropin/time is a copy`
}
