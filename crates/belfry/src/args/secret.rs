//! Arguments of `secret`.
//!
//! A value is never an argument, because every user of a machine can read the arguments of every process. The commands are in the
//! module `secrets` of [`crate::commands`].

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};

use super::examples;
use super::schedule::ApplyArgs;

/// `belfry secret …`
#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Create a secret, or change its values
    #[command(visible_alias = "set")]
    Put(PutArgs),
    /// Create or update secrets from files
    Apply(ApplyArgs),
    /// List secrets with their keys and versions
    #[command(visible_alias = "ls")]
    List,
    /// Show the details of a secret, without its values
    #[command(visible_alias = "show", before_help = examples! {
        "belfry secret get db"
        "belfry secret get db -o json"
    })]
    Get {
        /// Name of the secret
        #[arg(value_name = "SECRET")]
        name: String,
    },
    /// Delete secrets with their values; jobs that use them can no longer start
    #[command(visible_alias = "rm")]
    Delete {
        /// Names of the secrets
        #[arg(value_name = "SECRET", required = true)]
        names: Vec<String>,
    },
}

/// `belfry secret put`
#[derive(Debug, Args)]
#[command(
    before_help = examples! {
        "belfry secret put db password                  the terminal asks for the value"
        "belfry secret put db password=@db-password.txt ca.pem=@ca.pem"
        "vault read -field=password db | belfry secret put db password=-"
        "belfry secret put db password=env:DB_PASSWORD"
        "belfry secret put smtp --from-env-file smtp.env --replace"
    },
    after_help = "A value cannot be an argument: all users of a machine can read the arguments of a process."
)]
pub(crate) struct PutArgs {
    /// Name of the secret
    #[arg(value_name = "SECRET")]
    pub(crate) name: String,
    /// Key with the source of its value: `KEY=@FILE`, `KEY=-` (standard input), `KEY=env:NAME`, or `KEY` alone to enter it
    #[arg(value_name = "KEY[=SOURCE]", required_unless_present_any = ["from_env_file", "description"])]
    pub(crate) values: Vec<ValueSource>,
    /// File with a line `KEY=VALUE` for each value; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) from_env_file: Option<PathBuf>,
    /// Description of the secret; it is not encrypted
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Delete the values of all other keys [default: keep them]
    #[arg(long)]
    pub(crate) replace: bool,
}

/// Key of a secret, and where its value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ValueSource {
    pub(crate) key: String,
    pub(crate) source: Source,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The terminal asks for it.
    Terminal,
    File(PathBuf),
    StandardInput,
    Variable(String),
}

impl FromStr for ValueSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, source) = match text.split_once('=') {
            None => (text, Source::Terminal),
            Some((key, "-")) => (key, Source::StandardInput),
            Some((key, source)) => match (source.strip_prefix('@'), source.strip_prefix("env:")) {
                (Some(path), _) => (key, Source::File(path.into())),
                (_, Some(name)) => (key, Source::Variable(name.to_owned())),
                // Without the text, which may be a value.
                (None, None) => {
                    return Err(format!(
                        "a value cannot be an argument: use `{key}=@FILE`, `{key}=-` or `{key}=env:NAME`"
                    ));
                }
            },
        };
        Ok(Self { key: key.to_owned(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_a_source_and_is_no_argument() {
        let parse = |text: &str| text.parse::<ValueSource>().map(|it| (it.key, it.source));
        assert_eq!(parse("a"), Ok(("a".into(), Source::Terminal)));
        assert_eq!(parse("a=-"), Ok(("a".into(), Source::StandardInput)));
        assert_eq!(parse("a=@x=y"), Ok(("a".into(), Source::File("x=y".into()))));
        assert_eq!(parse("a=env:B"), Ok(("a".into(), Source::Variable("B".into()))));
        assert!(!parse("a=hunter2").unwrap_err().contains("hunter2"));
    }
}
