//! Settings and their origins.
//!
//! The value of a setting comes from a flag, else an environment variable, else a context, else a file, else its
//! default. A context of `--context` precedes the environment ([`Settings::load`]). All settings are in one table
//! ([`table::SETTINGS`]), from which files, variables, `belfry config show` and the docs are derived. One file is read;
//! files are never merged. All errors are reported together, each under the name that the user wrote.
//!
//! - [`table`]: the settings with their kinds, defaults and help texts.
//! - `value`: kinds of values, and parsing of text and TOML.
//! - `convert`: configuration of servers and workers from settings.

mod convert;
pub(crate) mod table;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub(crate) use self::table::{SETTINGS, Setting};
pub(crate) use self::value::Value;
use crate::contexts::{Selected, Selection};
use crate::failure::{Exit, Failure};
use crate::output::OutputOptions;
use crate::output::table::{Cell, Column, Row, column};

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    /// Context with this name.
    Context(String),
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Context(name) => write!(f, "context {name}"),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// Sources of settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    /// Environment variables.
    pub(crate) variables: BTreeMap<String, String>,
    /// Configuration file, if any.
    pub(crate) file: Option<PathBuf>,
    /// Flags of the command line: key of the setting, flag, text.
    pub(crate) flags: Vec<(&'static str, &'static str, String)>,
    /// Selected context, if any.
    pub(crate) context: Option<Selected>,
}

impl Sources {
    /// Returns the environment of this process, without a file. Variables that are not UTF-8 are ignored.
    pub(crate) fn environment() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { variables, ..Self::default() }
    }

    /// Selects the file: `named`, else `$BELFRY_CONFIG`, else the first of `defaults` that exists.
    pub(crate) fn with_file(mut self, named: Option<PathBuf>, defaults: &[PathBuf]) -> Self {
        let named = named.or_else(|| self.variable("BELFRY_CONFIG").map(PathBuf::from));
        self.file = named.or_else(|| defaults.iter().find(|path| path.exists()).cloned());
        self
    }

    /// Adds a flag, if it was given.
    pub(crate) fn flag(&mut self, key: &'static str, flag: &'static str, text: Option<impl ToString>) {
        self.flags.extend(text.map(|text| (key, flag, text.to_string())));
    }

    /// Returns an environment variable; `None` if it is not set or empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the configuration file of the user: `~/.config/belfry/config.toml`, or below `XDG_CONFIG_HOME`.
    pub(crate) fn user_file(&self) -> Option<PathBuf> {
        self.user_dir("XDG_CONFIG_HOME", ".config").map(|dir| dir.join("config.toml"))
    }

    /// Returns the file with the contexts of the user, beside [`Self::user_file`].
    pub(crate) fn user_contexts(&self) -> Option<PathBuf> {
        self.user_dir("XDG_CONFIG_HOME", ".config").map(|dir| dir.join("contexts.toml"))
    }

    /// Whether a flag or an environment variable sets the server, so that the context in use is ignored.
    pub(crate) fn names_server(&self) -> bool {
        let is_set = |name| self.variable(name).is_some();
        is_set("BELFRY_URL")
            || is_set("BELFRY_DEV_DATA")
            || self.flags.iter().any(|(key, ..)| *key == "client.url")
    }

    /// Returns the data directory of the user: `~/.local/share/belfry`, or below `XDG_DATA_HOME`.
    pub(crate) fn user_data(&self) -> Option<PathBuf> {
        self.user_dir("XDG_DATA_HOME", ".local/share")
    }

    /// Returns the state directory of the user: `~/.local/state/belfry`, or below `XDG_STATE_HOME`.
    pub(crate) fn user_state(&self) -> Option<PathBuf> {
        self.user_dir("XDG_STATE_HOME", ".local/state")
    }

    fn user_dir(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        let base = match self.variable(variable) {
            Some(dir) if Path::new(dir).is_absolute() => PathBuf::from(dir),
            _ => Path::new(self.variable("HOME")?).join(below_home),
        };
        Some(base.join("belfry"))
    }
}

/// Error in a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingError {
    /// Name that the user wrote: a key with its file, a variable or a flag.
    pub(crate) at: String,
    /// Value that was found, and what was expected.
    pub(crate) detail: String,
}

/// Values of all settings, with their origins. A setting without a value and a default is absent.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, (Value, Origin)>,
    /// File that was read, if any.
    pub(crate) file: Option<PathBuf>,
}

impl Settings {
    /// Reads all sources.
    ///
    /// A context is one server with its token and its namespace: it replaces all three of the file. The context in use
    /// is ignored if a flag or a variable sets another server, so that its token is sent to its own server only.
    /// A context of `--context` is as explicit as a flag, so it precedes the environment; other flags still precede it.
    ///
    /// # Errors
    /// One [`Failure`] that lists all invalid settings, or the file that cannot be read or parsed.
    pub(crate) fn load(sources: &Sources) -> Result<Self, Failure> {
        let mut wrong = Vec::new();
        let mut settings = Self { values: BTreeMap::new(), file: sources.file.clone() };
        settings.defaults(sources);
        if let Some(path) = &sources.file {
            settings.read_file(path, &mut wrong)?;
        }
        let context = |by| sources.context.as_ref().filter(|context| context.by == by);
        if let Some(context) = context(Selection::Default).filter(|_| !sources.names_server()) {
            settings.replace_by_context(sources, context, &mut wrong);
        }
        settings.read_variables(sources, &mut wrong);
        if let Some(context) = context(Selection::Flag) {
            settings.replace_by_context(sources, context, &mut wrong);
        }
        settings.read_flags(sources, &mut wrong);
        if wrong.is_empty() { Ok(settings) } else { Err(refusal(wrong)) }
    }

    /// Adds the default of each setting without a value.
    fn defaults(&mut self, sources: &Sources) {
        for setting in SETTINGS {
            let text = match setting.default {
                "{data}" => sources.user_data().map(|dir| dir.display().to_string()).unwrap_or_default(),
                text => text.to_owned(),
            };
            if text.is_empty() {
                continue;
            }
            // A test parses every default, so an error is impossible here.
            if let Ok(value) = setting.kind.parse(&text) {
                self.values.entry(setting.key).or_insert((value, Origin::Default));
            }
        }
    }

    fn read_file(&mut self, path: &Path, wrong: &mut Vec<SettingError>) -> Result<(), Failure> {
        let failed = |detail: String| Failure::usage(format!("cannot read `{}`: {detail}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| failed(e.to_string()))?;
        for (section, value) in table {
            let toml::Value::Table(section_table) = value else {
                wrong.push(unknown(&format!("{section} in {}", path.display()), &section));
                continue;
            };
            for (name, value) in section_table {
                let key = format!("{section}.{name}");
                let at = format!("{key} in {}", path.display());
                match Setting::find(&key).filter(|s| !s.secret) {
                    Some(setting) => match setting.kind.convert(value) {
                        Ok(value) => {
                            drop(self.values.insert(setting.key, (value, Origin::File(path.to_owned()))))
                        }
                        Err(detail) => wrong.push(SettingError { at, detail }),
                    },
                    None => wrong.push(unknown(&at, &key)),
                }
            }
        }
        Ok(())
    }

    /// Replaces server, authority, tokens and namespace by those of a context, so that no other server's token is sent to it.
    fn replace_by_context(&mut self, sources: &Sources, context: &Selected, wrong: &mut Vec<SettingError>) {
        for key in ["client.url", "client.ca_file", "client.token_file", "client.token", "client.namespace"] {
            self.values.remove(key);
        }
        self.defaults(sources);
        self.read_context(context, wrong);
    }

    fn read_context(&mut self, context: &Selected, wrong: &mut Vec<SettingError>) {
        let settings = &context.settings;
        let shown = |file: &Option<PathBuf>| file.as_ref().map(|file| file.display().to_string());
        let (token_file, ca_file) = (shown(&settings.token_file), shown(&settings.ca_file));
        for (key, text) in [
            ("client.url", Some(&settings.url)),
            ("client.ca_file", ca_file.as_ref()),
            ("client.token_file", token_file.as_ref()),
            ("client.namespace", settings.namespace.as_ref()),
        ] {
            let (Some(setting), Some(text)) = (Setting::find(key), text) else { continue };
            match setting.kind.parse(text) {
                Ok(value) => {
                    drop(self.values.insert(setting.key, (value, Origin::Context(context.name.clone()))))
                }
                Err(detail) => {
                    wrong.push(SettingError { at: format!("{key} in context {}", context.name), detail })
                }
            }
        }
    }

    fn read_variables(&mut self, sources: &Sources, wrong: &mut Vec<SettingError>) {
        for setting in SETTINGS {
            let name = setting.variable();
            let Some(text) = sources.variable(&name) else { continue };
            match setting.kind.parse(text) {
                Ok(value) => drop(self.values.insert(setting.key, (value, Origin::Variable(name)))),
                Err(detail) => wrong.push(SettingError { at: format!("${name}"), detail }),
            }
        }
        // Unknown variables are reported for these prefixes only: tasks have variables such as `BELFRY_JOB_ID`.
        for name in sources.variables.keys() {
            let ours = ["BELFRY_SERVER__", "BELFRY_WORKER__"].iter().any(|prefix| name.starts_with(prefix));
            if ours && !SETTINGS.iter().any(|s| s.variable() == *name) {
                wrong.push(SettingError { at: format!("${name}"), detail: "unknown setting".into() });
            }
        }
    }

    fn read_flags(&mut self, sources: &Sources, wrong: &mut Vec<SettingError>) {
        for (key, flag, text) in &sources.flags {
            let Some(setting) = Setting::find(key) else { continue };
            match setting.kind.parse(text) {
                Ok(value) => drop(self.values.insert(setting.key, (value, Origin::Flag(flag)))),
                Err(detail) => wrong.push(SettingError { at: (*flag).to_owned(), detail }),
            }
        }
    }

    fn value(&self, key: &str) -> Option<&Value> {
        debug_assert!(Setting::find(key).is_some(), "{key} is not in the table");
        self.values.get(key).map(|(value, _)| value)
    }

    /// Returns the origin of a setting; `None` if it has no value.
    pub(crate) fn origin(&self, key: &str) -> Option<&Origin> {
        self.values.get(key).map(|(_, origin)| origin)
    }

    /// Returns all settings in the order of the table. Values of secrets are omitted.
    pub(crate) fn rows(&self) -> Vec<SettingRow> {
        let row = |setting: &Setting| {
            let found = self.values.get(setting.key);
            SettingRow {
                key: setting.key,
                value: found.filter(|_| !setting.secret).map(|(value, _)| value.clone()),
                origin: match found {
                    Some((_, origin)) => origin.to_string(),
                    None => "not set".into(),
                },
                variable: setting.variable(),
                help: setting.help,
            }
        };
        SETTINGS.iter().map(row).collect()
    }
}

fn unknown(at: &str, key: &str) -> SettingError {
    if Setting::find(key).is_some() {
        let detail = "is a secret and is not allowed in this file; set `client.token_file` instead";
        return SettingError { at: at.to_owned(), detail: detail.into() };
    }
    let near = SETTINGS.iter().min_by_key(|s| distance(s.key, key)).filter(|s| distance(s.key, key) <= 3);
    let detail = match near {
        Some(setting) => format!("unknown setting; did you mean `{}`?", setting.key),
        None => "unknown setting".into(),
    };
    SettingError { at: at.to_owned(), detail }
}

fn refusal(wrong: Vec<SettingError>) -> Failure {
    let fields = wrong
        .into_iter()
        .map(|w| model::api::FieldError { pointer: String::new(), path: w.at, detail: w.detail })
        .collect();
    Failure::message(Exit::Usage, "the configuration is invalid")
        .fields(fields)
        .help("`belfry config show` lists all settings")
}

/// Returns the Levenshtein distance of two texts, in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut above_left = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let best = (row[j] + 1).min(row[j + 1] + 1).min(above_left + usize::from(x != *y));
            above_left = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[b.len()]
}

/// Setting as a row of `belfry config show`.
#[derive(Debug, Serialize)]
pub(crate) struct SettingRow {
    key: &'static str,
    value: Option<Value>,
    origin: String,
    variable: String,
    help: &'static str,
}

impl Row for SettingRow {
    const COLUMNS: &'static [Column] = &[
        column("SETTING", 24),
        column("VALUE", 24).cut(16),
        column("ORIGIN", 16).cut(12),
        crate::output::table::wide("VARIABLE", 24),
        crate::output::table::wide("DESCRIPTION", 40),
    ];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.key.into(),
            self.value.as_ref().map(ToString::to_string).into(),
            self.origin.as_str().into(),
            self.variable.as_str().into(),
            self.help.into(),
        ]
    }

    fn name(&self) -> String {
        self.key.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(variables: &[(&str, &str)], file: Option<(&tempfile::TempDir, &str)>) -> Sources {
        let mut variables: BTreeMap<_, _> =
            variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        variables.insert("HOME".into(), "/home/me".into());
        let file = file.map(|(dir, text)| {
            let path = dir.path().join("config.toml");
            std::fs::write(&path, text).unwrap();
            path
        });
        Sources { variables, file, ..Sources::default() }
    }

    fn shown(settings: &Settings, key: &'static str) -> String {
        let (value, origin) = &settings.values[key];
        format!("{value} ({})", origin.to_string().rsplit('/').next().unwrap())
    }

    #[test]
    fn a_flag_precedes_the_environment_the_file_and_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let file = "[client]\nurl = \"http://file:1\"\nnamespace = \"filed\"\nretry_for = \"9s\"\n";
        let mut sources =
            sources(&[("BELFRY_URL", "http://env:1"), ("BELFRY_NAMESPACE", "envy")], Some((&dir, file)));
        sources.flag("client.url", "--url", Some("http://flag:1"));
        let settings = Settings::load(&sources).unwrap();
        assert_eq!(shown(&settings, "client.url"), "http://flag:1 (--url)");
        assert_eq!(shown(&settings, "client.namespace"), "envy ($BELFRY_NAMESPACE)");
        assert_eq!(shown(&settings, "client.retry_for"), "9s (config.toml)");
        assert_eq!(shown(&settings, "server.listen"), "127.0.0.1:7070 (default)");
    }

    fn with_context(mut sources: Sources, by: Selection, token_file: Option<&str>) -> Sources {
        let settings = crate::contexts::ContextSettings {
            url: "http://context:1".into(),
            token_file: token_file.map(PathBuf::from),
            ca_file: Some("/ca.pem".into()),
            namespace: Some("of-context".into()),
        };
        sources.context = Some(Selected { name: "lab".into(), settings, by });
        sources
    }

    /// Returns URL, token file and namespace with their origins.
    fn server(sources: &Sources) -> [String; 3] {
        let settings = Settings::load(sources).unwrap();
        ["client.url", "client.token_file", "client.namespace"]
            .map(|key| if settings.values.contains_key(key) { shown(&settings, key) } else { "-".into() })
    }

    #[test]
    fn the_context_in_use_precedes_the_file_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = "[client]\nurl = \"http://file:1\"\ntoken_file = \"/file\"\nnamespace = \"filed\"\n";
        let plain = sources(&[], Some((&dir, file)));
        // The token of the file is for the server of the file.
        let context = with_context(plain.clone(), Selection::Default, None);
        assert_eq!(server(&context), ["http://context:1 (context lab)", "-", "of-context (context lab)"]);
        let context = with_context(plain, Selection::Default, Some("/token"));
        assert_eq!(server(&context)[1], "/token (context lab)");
        let settings = Settings::load(&context).unwrap();
        assert_eq!(shown(&settings, "client.ca_file"), "/ca.pem (context lab)");
    }

    #[test]
    fn a_flag_and_the_environment_precede_the_context_in_use() {
        let context = |variables: &[(&str, &str)]| {
            with_context(sources(variables, None), Selection::Default, Some("/token"))
        };
        let namespaced = context(&[("BELFRY_NAMESPACE", "envy")]);
        let token = "/token (context lab)";
        assert_eq!(
            server(&namespaced),
            ["http://context:1 (context lab)", token, "envy ($BELFRY_NAMESPACE)"]
        );
        // Another server never gets the token of the context.
        let other = context(&[("BELFRY_URL", "http://env:1")]);
        assert_eq!(server(&other), ["http://env:1 ($BELFRY_URL)", "-", "default (default)"]);
        let dev = context(&[("BELFRY_DEV_DATA", "/dev-data")]);
        assert_eq!(server(&dev), ["-", "-", "default (default)"]);
        let mut other = context(&[]);
        other.flag("client.url", "--url", Some("http://flag:1"));
        assert_eq!(server(&other), ["http://flag:1 (--url)", "-", "default (default)"]);
    }

    #[test]
    fn a_context_of_the_command_line_precedes_the_environment() {
        let variables = [
            ("BELFRY_URL", "http://env:1"),
            ("BELFRY_TOKEN", "bf_env"),
            ("BELFRY_TOKEN_FILE", "/env"),
            ("BELFRY_NAMESPACE", "envy"),
        ];
        let context = with_context(sources(&variables, None), Selection::Flag, Some("/token"));
        assert_eq!(
            server(&context),
            ["http://context:1 (context lab)", "/token (context lab)", "of-context (context lab)"]
        );
        assert_eq!(Settings::load(&context).unwrap().text("client.token"), None);
        // Without a token of its own, it gets none of another server.
        let bare = with_context(sources(&variables, None), Selection::Flag, None);
        assert_eq!(server(&bare)[1], "-");
        assert_eq!(Settings::load(&bare).unwrap().text("client.token"), None);
        let mut context = context;
        context.flag("client.namespace", "--namespace", Some("flagged"));
        assert_eq!(server(&context)[2], "flagged (--namespace)");
    }

    #[test]
    fn all_invalid_settings_are_reported_together() {
        let dir = tempfile::tempdir().unwrap();
        let file = "stray = 1\n[client]\nulr = \"x\"\ntoken = \"bf_x\"\n[server]\nlisten = \"nowhere\"\nshards = -1\nbehind_proxy = \"maybe\"\n[worker]\nlabels = { zone = 1 }\nslots = \"many\"\nport_range = \"9-1\"\n[attic]\nbat = 1\n";
        let variables =
            [("BELFRY_SERVER__LEASE", "soon"), ("BELFRY_WORKER__NMAE", "x"), ("BELFRY_JOB_ID", "fine")];
        let failure = Settings::load(&sources(&variables, Some((&dir, file)))).unwrap_err();
        assert_eq!(failure.exit(), Exit::Usage);
        let text = failure.render(false).replace(&dir.path().display().to_string(), "DIR");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn an_invalid_toml_file_is_reported_with_its_position() {
        let dir = tempfile::tempdir().unwrap();
        let text = Settings::load(&sources(&[], Some((&dir, "[client\nurl = 1")))).unwrap_err().render(false);
        assert!(text.contains("line 1"), "{text}");
    }

    #[test]
    fn every_default_is_valid_and_every_key_is_unique() {
        for setting in SETTINGS {
            if !setting.default.is_empty() && setting.default != "{data}" {
                assert!(setting.kind.parse(setting.default).is_ok(), "{}", setting.key);
            }
            assert_eq!(SETTINGS.iter().filter(|s| s.key == setting.key).count(), 1, "{}", setting.key);
            assert_eq!(
                SETTINGS.iter().filter(|s| s.variable() == setting.variable()).count(),
                1,
                "{}",
                setting.key
            );
        }
    }

    #[test]
    fn every_setting_is_listed_with_its_default() {
        let rows = Settings::load(&sources(&[("BELFRY_TOKEN", "bf_secret")], None)).unwrap().rows();
        let look = OutputOptions {
            format: crate::output::Format::Wide,
            color: false,
            now: model::Timestamp::from_millis(0),
            width: None,
        };
        let text = crate::output::list(&look, &rows).unwrap();
        assert!(!text.contains("bf_secret"));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn user_folders_follow_the_variables_of_the_desktop() {
        let mut sources = sources(&[], None);
        assert_eq!(sources.user_file().unwrap(), Path::new("/home/me/.config/belfry/config.toml"));
        sources.variables.insert("XDG_DATA_HOME".into(), "/elsewhere".into());
        assert_eq!(sources.user_data().unwrap(), Path::new("/elsewhere/belfry"));
        sources.variables.insert("XDG_DATA_HOME".into(), "not/absolute".into());
        assert_eq!(sources.user_data().unwrap(), Path::new("/home/me/.local/share/belfry"));
        assert_eq!(sources.user_state().unwrap(), Path::new("/home/me/.local/state/belfry"));
        sources.variables.insert("XDG_STATE_HOME".into(), "/state".into());
        assert_eq!(sources.user_state().unwrap(), Path::new("/state/belfry"));
    }
}
