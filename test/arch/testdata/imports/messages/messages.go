// Package messages imports another folder.
package messages

import _ "example.test/planted/engine/schedule"
