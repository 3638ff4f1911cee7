// Package page tests the page of package debug in a real browser, and makes the
// picture of it that is in the README. It is a module of its own, because it needs a
// driver for the browser.
//
// Without a Chromium the tests are skipped, unless TICKWHEEL_BROWSER is "required".
package page
