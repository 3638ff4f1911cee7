// Package page tests the pages of packages debug and durable/admin in a real browser, and
// makes the pictures of them that are in the READMEs. It is in a module of its own, because
// it needs a driver for the browser.
//
// Without a Chromium the tests are skipped, unless TICKWHEEL_BROWSER is "required".
package page
