package cycle

import _ "example.test/planted/engine/runtime/runtimetest"
