// Package deploy embeds files.
package deploy

import (
	_ "embed"
	_ "example.test/planted/messages"
)
