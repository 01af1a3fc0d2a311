//! `belfry config`: validates a configuration file, or lists all settings with their origins.

use std::path::{Path, PathBuf};

use super::Context;
use crate::args::more::ConfigCommand;
use crate::failure::Failure;
use crate::output::{Format, value};
use crate::settings::{Settings, Sources};

/// Default configuration file of servers and workers.
pub(super) const SYSTEM_FILE: &str = "/etc/belfry/config.toml";

pub(super) fn run(context: &Context, command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check { file } => {
            let settings = Settings::load(&sources(context, file)?)?;
            settings.server()?;
            let checked = file_name(&settings);
            let look = &context.out.look;
            if matches!(look.format, Format::Json | Format::Yaml) {
                let shown = serde_json::json!({"valid": true, "checked": checked});
                return context.out.data(value(look, &shown)?);
            }
            context.out.note(format!("{checked} is valid"));
            Ok(())
        }
        ConfigCommand::Show => {
            let settings = Settings::load(&sources(context, None)?)?;
            context.out.list(&settings.rows(), "settings")
        }
    }
}

fn sources(context: &Context, file: Option<PathBuf>) -> Result<Sources, Failure> {
    let sources = context.sources()?;
    let mut defaults: Vec<_> = sources.user_file().into_iter().collect();
    defaults.push(Path::new(SYSTEM_FILE).to_owned());
    Ok(sources.with_file(file.or_else(|| context.global.config.clone()), &defaults))
}

fn file_name(settings: &Settings) -> String {
    settings
        .file
        .as_ref()
        .map_or_else(|| "the configuration of the environment".into(), |path| path.display().to_string())
}
