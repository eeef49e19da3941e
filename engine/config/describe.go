package config

//go:generate go test . -run TestPluginDocs -update

// Family is a kind of plugins, with the documentation of all plugins of that kind.
type Family struct {
	Name    string
	Plugins []Plugin // sorted by type
}

// Plugin is the user documentation of one plugin type.
type Plugin struct {
	Type       string
	Text       string // what the plugin does
	Parameters []Parameter
}

// Parameter is one parameter of a plugin.
type Parameter struct {
	Name    string // a path, such as matchExpressions[].key
	Kind    string
	Default string // as a file has it; "" = empty, or none
	Text    string
	Effect  string // "" = it works; "warning" = it is read and has no effect; "none" = only its default is accepted
}

// Describe returns the documentation of every plugin that a configuration may name. It is generated from the doc
// comments of the plugins' types. The caller must not change it.
func Describe() []Family { return pluginDocs }
