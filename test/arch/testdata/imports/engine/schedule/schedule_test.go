package schedule_test

import (
	_ "example.test/planted/adapters/extproc"
	_ "example.test/planted/engine/schedule"
)
