//! Arguments of `context`. The settings of a context are the global options `--url`, `--token-file`,
//! `--ca-file` and `--namespace`.

use clap::{Args, Subcommand};

use super::examples;

/// `belfry context …`
#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// List contexts; `*` marks the one in use
    #[command(visible_alias = "ls", before_help = examples! { "belfry context list" })]
    List,
    /// Show the details of a context
    #[command(before_help = examples! {
        "belfry context get                   the context in use"
        "belfry context get production"
    })]
    Get {
        /// Name of the context [default: the context in use]
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// Create a context, or change the given fields of a context
    #[command(before_help = examples! {
        "belfry context set production --url https://belfry.example --token-file ~/belfry.token --use"
        "belfry context set production --namespace pay"
    })]
    #[command(
        after_help = "The global options --url, --token-file, --ca-file and --namespace are the fields of the context. The \
        context contains the path of the token file, not the token."
    )]
    Set(ContextSetArgs),
    /// Use a context for the following commands
    #[command(before_help = examples! {
        "belfry context use production"
        "belfry context use --none"
    })]
    Use {
        /// Name of the context
        #[arg(value_name = "NAME", required_unless_present = "none")]
        name: Option<String>,
        /// Use no context: the server is that of the configuration file, or your running `belfry dev`
        #[arg(long, conflicts_with = "name")]
        none: bool,
    },
    /// Delete contexts; their token files stay
    #[command(before_help = examples! { "belfry context delete lab" })]
    Delete {
        /// Names of the contexts
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

/// `belfry context set`
#[derive(Debug, Args)]
pub(crate) struct ContextSetArgs {
    /// Name of the context
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Also use the context for the following commands
    #[arg(long = "use")]
    pub(crate) is_current: bool,
}
