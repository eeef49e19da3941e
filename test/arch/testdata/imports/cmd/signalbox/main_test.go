package main

import _ "example.test/planted/adapters/secrets/secretstest"
