//! Arguments of `login`, `logout`, `auth`, `account`, `role` and `token`.
//!
//! Accounts and roles are named by their names, and tokens by their IDs. No argument takes the secret of a token: every
//! user of a machine can read the arguments of every process. A role binding has no name: its role, its account and its
//! namespace (`-n`) name it. The commands are in the modules `login`, `auth`, `accounts`, `roles` and `tokens` of
//! [`crate::commands`].

use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use model::Duration;
use model::access::{Resource, SubmitRate, Verb};
use model::api::{RoleRule, TokenKind};

use super::examples;

/// `belfry login`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry login https://belfry.example                    opens the browser, or asks for account and password"
    "belfry login --account ann@example.com --remember"
    "pass belfry | belfry login --account ann@example.com --password-stdin"
})]
#[command(
    after_help = "If the server has an OpenID provider, you log in there, in the browser. With `--account`, you log in with \
    the password. The session is stored in a file that only your user can read, and a context for the server uses the file. \
    An administrator creates a link to set your password: `belfry account invite`. Programs use tokens instead."
)]
pub(crate) struct LoginArgs {
    /// URL of the server [default: that of the context, or your running `belfry dev`]
    #[arg(value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Name of the account, to log in with its password [default: log in at the OpenID provider, or ask on the terminal]
    #[arg(long, value_name = "ACCOUNT")]
    pub(crate) account: Option<String>,
    /// Read the password from standard input instead of the terminal
    #[arg(long, requires = "account")]
    pub(crate) password_stdin: bool,
    #[command(flatten)]
    pub(crate) how: LoginHow,
    /// Name of the context [default: the context of the server, or a new one with the name of the host]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// How a login is done.
#[derive(Debug, Args)]
pub(crate) struct LoginHow {
    /// Session for 30 days instead of one
    #[arg(long)]
    pub(crate) remember: bool,
    /// Print the page of the login instead of opening it in the browser
    #[arg(long, conflicts_with = "account")]
    pub(crate) no_browser: bool,
}

/// `belfry auth …`
#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Show the server, your account and your rights
    #[command(before_help = examples! {
        "belfry auth whoami"
        "belfry auth whoami -o json"
    })]
    Whoami,
    /// Check whether you, or an account, may do something; exit with code 1 if not
    #[command(visible_alias = "why")]
    CanI(CanIArgs),
}

/// `belfry auth can-i`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry auth can-i create jobs                          in the namespace of the context"
    "belfry auth can-i operate runs -n finance"
    "belfry auth can-i change queues -n '*'                 in the whole cluster"
    "belfry auth can-i read logs -n finance --as ann@example.com"
})]
#[command(
    after_help = "Prints yes or no, and for no the reason. `operate` is to cancel, retry, pause, resume, trigger, start, \
    approve and drain. `work` is to act as a worker."
)]
pub(crate) struct CanIArgs {
    /// Action
    #[arg(value_name = "VERB", value_parser = verb())]
    pub(crate) verb: Verb,
    /// Kind of resource
    #[arg(value_name = "RESOURCE", value_parser = resource())]
    pub(crate) resource: Resource,
    /// Account to check instead of your own; needs the right to read access in the whole cluster
    #[arg(long = "as", value_name = "ACCOUNT")]
    pub(crate) account: Option<String>,
}

/// `belfry account …`
#[derive(Debug, Subcommand)]
pub(crate) enum AccountCommand {
    /// List accounts with their roles
    #[command(visible_alias = "ls", before_help = examples! {
        "belfry account list"
        "belfry account list --text ann"
        "belfry account list -n finance        accounts with a role in the namespace"
    })]
    List {
        /// Only accounts whose name or display name contains this text
        #[arg(long, value_name = "TEXT")]
        text: Option<String>,
    },
    /// Show the details of an account
    #[command(before_help = examples! { "belfry account get ann@example.com" })]
    Get(AccountArgs),
    /// Create an account of a person or of a program
    Create(AccountCreateArgs),
    /// Change the display name of an account, or disable or enable the account
    Update(AccountUpdateArgs),
    /// Create a link with which a person sets a password, also in place of a forgotten one
    Invite(AccountInviteArgs),
    /// Change your own password
    #[command(before_help = examples! {
        "belfry account password                               asks for the current and the new password"
    })]
    #[command(
        after_help = "Your other sessions end, and an invitation that was not used. Tokens stay valid."
    )]
    Password,
    /// Delete the second factor of an account whose person has lost the device
    #[command(before_help = examples! { "belfry account reset-totp ann@example.com" })]
    #[command(
        after_help = "A login then needs only the password. The person turns the second factor on in the dashboard."
    )]
    ResetTotp(AccountArgs),
    /// Unlink an account from its person at the OpenID provider
    #[command(before_help = examples! { "belfry account unlink ann@example.com" })]
    #[command(after_help = "The account loses the groups of the provider, and its sessions end.")]
    Unlink(AccountArgs),
    /// End all sessions of accounts: each person has to log in again
    #[command(before_help = examples! { "belfry account logout ann@example.com" })]
    #[command(
        after_help = "Tokens and passwords stay. Without accounts, your own sessions end, except the one that you use."
    )]
    Logout {
        /// Names of the accounts [default: your own account]
        #[arg(value_name = "ACCOUNT")]
        names: Vec<String>,
    },
    /// Delete accounts with their role bindings, and revoke their tokens
    #[command(before_help = examples! { "belfry account delete ann@example.com --yes" })]
    #[command(after_help = "Jobs, schedules and workflows of the account continue.")]
    Delete {
        /// Names of the accounts
        #[arg(value_name = "ACCOUNT", required = true)]
        names: Vec<String>,
        /// Delete the accounts without a confirmation prompt
        #[arg(short, long)]
        yes: bool,
    },
}

/// One account.
#[derive(Debug, Args)]
pub(crate) struct AccountArgs {
    /// Name of the account
    #[arg(value_name = "ACCOUNT")]
    pub(crate) name: String,
}

/// `belfry account create`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry account create ann@example.com --title 'Ann Lee'"
    "belfry account create finance-ci --service"
})]
#[command(
    after_help = "A new account has no role, no password and no token: see `belfry role bind`, `belfry account invite` \
    and `belfry token create`."
)]
pub(crate) struct AccountCreateArgs {
    /// Name of the account, for example an email address
    #[arg(value_name = "ACCOUNT")]
    pub(crate) name: String,
    /// Account of a program, not of a person
    #[arg(long)]
    pub(crate) service: bool,
    /// Display name, at most 100 characters
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Jobs that the account may submit per minute: a number, unlimited or default
    #[arg(long, value_name = "JOBS", default_value_t)]
    pub(crate) submit_rate: SubmitRate,
}

/// `belfry account update`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry account update ann@example.com --title 'Ann Lee (finance)'"
    "belfry account update ann@example.com --disable"
    "belfry account update ann@example.com --submit-rate 5000"
})]
#[command(after_help = "A disabled account keeps its roles and tokens, but every server refuses its tokens.")]
pub(crate) struct AccountUpdateArgs {
    /// Name of the account
    #[arg(value_name = "ACCOUNT")]
    pub(crate) name: String,
    /// Display name; '' removes it [default: the display name stays]
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Disable the account: its tokens are refused
    #[arg(long, conflicts_with = "enable")]
    pub(crate) disable: bool,
    /// Enable the account again
    #[arg(long)]
    pub(crate) enable: bool,
    /// Jobs that the account may submit per minute: a number, unlimited or default [default: the limit stays]
    #[arg(long, value_name = "JOBS")]
    pub(crate) submit_rate: Option<SubmitRate>,
}

/// `belfry account invite`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry account invite ann@example.com                   prints a link for Ann"
    "belfry account invite ann@example.com --expires-in 4h"
    "belfry account invite ann@example.com --reset           the old password and all sessions end at once"
    "belfry account invite ann@example.com --revoke          the link stops working"
})]
#[command(
    after_help = "Standard output has only the link, with `-o json` or `-o yaml` the whole object. A link works once, and \
    a new one replaces it. The bearer of the link sets the password, so send the link on a channel that only the person \
    reads."
)]
pub(crate) struct AccountInviteArgs {
    /// Name of the account
    #[arg(value_name = "ACCOUNT")]
    pub(crate) name: String,
    /// Time until the link expires, at most 30d [default: 3d]
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires_in: Option<Duration>,
    /// Delete the password and end the sessions at once [default: when the link is used]
    #[arg(long)]
    pub(crate) reset: bool,
    /// Revoke the link instead of creating one
    #[arg(long, conflicts_with_all = ["reset", "expires_in"])]
    pub(crate) revoke: bool,
}

/// `belfry role …`
#[derive(Debug, Subcommand)]
pub(crate) enum RoleCommand {
    /// List roles: the built-in roles, then the custom roles
    #[command(visible_alias = "ls", before_help = examples! { "belfry role list" })]
    List,
    /// Show the permissions of a role
    #[command(before_help = examples! { "belfry role get developer" })]
    Get(RoleArgs),
    /// Create a custom role, or replace its permissions
    Set(RoleSetArgs),
    /// Delete custom roles that no account has and that limit no token
    #[command(visible_alias = "rm", before_help = examples! { "belfry role delete on-call" })]
    Delete {
        /// Names of the roles
        #[arg(value_name = "ROLE", required = true)]
        names: Vec<String>,
    },
    /// Give an account a role in a namespace
    #[command(before_help = examples! {
        "belfry role bind developer ann@example.com -n finance"
        "belfry role bind viewer ann@example.com -n '*'        in all namespaces and the cluster"
        "belfry role bind developer --group devs -n finance    for all with a group at the OpenID provider"
    })]
    #[command(after_help = BINDING_HELP)]
    Bind(RoleBindArgs),
    /// Take a role in a namespace from an account or a group
    #[command(before_help = examples! { "belfry role unbind developer ann@example.com -n finance" })]
    #[command(after_help = BINDING_HELP)]
    Unbind(RoleBindArgs),
    /// List role bindings: which account or group has which role in which namespace
    #[command(before_help = examples! {
        "belfry role bindings                             in all namespaces that you may see"
        "belfry role bindings --account ann@example.com"
        "belfry role bindings --role admin -n '*'         only those in all namespaces"
    })]
    #[command(
        after_help = "`-n` lists the bindings of one namespace. The namespace of the context is not used."
    )]
    Bindings {
        /// Only bindings of this account
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
        /// Only bindings of this group
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// Only bindings of this role
        #[arg(long, value_name = "ROLE")]
        role: Option<String>,
    },
}

const BINDING_HELP: &str = "The namespace is that of `-n` [default: that of the context]. `-n '*'` stands for all \
    namespaces and the cluster itself.";

/// One role.
#[derive(Debug, Args)]
pub(crate) struct RoleArgs {
    /// Name of the role
    #[arg(value_name = "ROLE")]
    pub(crate) name: String,
}

/// `belfry role set`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry role set on-call --rule read,operate:jobs,runs --rule read:logs,executions"
    "belfry role set auditor --rule read:access,events --description 'Reads who may do what'"
})]
#[command(
    after_help = "Verbs: read, operate, create, change, delete. Resources: jobs, executions, logs, events, workers, \
    queues, schedules, workflows, runs, calendars, artifacts, server, access. The new permissions replace the old ones \
    for all accounts that have the role."
)]
pub(crate) struct RoleSetArgs {
    /// Name of the role; a role that does not exist is created
    #[arg(value_name = "ROLE")]
    pub(crate) name: String,
    /// Permissions: each verb on each resource, for example `read,operate:jobs,runs`; repeatable
    #[arg(long = "rule", value_name = "VERBS:RESOURCES", value_parser = rule, required = true)]
    pub(crate) rules: Vec<RoleRule>,
    /// Purpose of the role; '' removes it [default: the description stays]
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
}

/// `belfry role bind` and `belfry role unbind`
#[derive(Debug, Args)]
pub(crate) struct RoleBindArgs {
    /// Name of the role
    #[arg(value_name = "ROLE")]
    pub(crate) role: String,
    /// Name of the account
    #[arg(value_name = "ACCOUNT", required_unless_present = "group", conflicts_with = "group")]
    pub(crate) account: Option<String>,
    /// Name of a group at the OpenID provider, instead of an account
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
}

/// `belfry token …`
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// List tokens, without their secrets
    #[command(visible_alias = "ls", before_help = examples! {
        "belfry token list                             active tokens"
        "belfry token list --kind admin,worker --all   also expired and revoked ones"
        "belfry token list --name ann@example.com"
    })]
    #[command(
        after_help = "Without the right to read access in the whole cluster, the list has the tokens of your own \
        account. Expired and revoked tokens are kept for 30 days."
    )]
    List(TokenListArgs),
    /// Show the details of a token, without its secret
    #[command(before_help = examples! { "belfry token get 4w1kq0zj8x2m" })]
    Get {
        /// ID of the token
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Create a token and print its secret
    Create(TokenCreateArgs),
    /// Revoke tokens: every server refuses them within a second
    #[command(before_help = examples! { "belfry token revoke 4w1kq0zj8x2m" })]
    Revoke {
        /// IDs of the tokens
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

/// `belfry token list`
#[derive(Debug, Args)]
pub(crate) struct TokenListArgs {
    /// Only tokens of this bearer: an account, or the name of an admin or worker token
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Only tokens of these kinds, separated by commas: admin, worker, user, service
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
    pub(crate) kinds: Vec<TokenKind>,
    /// Also list expired and revoked tokens
    #[arg(long)]
    pub(crate) all: bool,
}

/// `belfry token create`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry token create --description laptop > token            for your own account"
    "TOKEN=$(belfry token create --account finance-ci --role developer --limit-namespace finance)"
    "belfry token create --kind worker --name zone-a > worker-token"
})]
#[command(
    after_help = "Standard output has only the secret, with `-o json` or `-o yaml` the whole object. The server \
    stores a hash of the secret and cannot show it again. A token has the rights of its account at the time of each \
    request."
)]
pub(crate) struct TokenCreateArgs {
    /// Account of the token [default: your own account]
    #[arg(long, value_name = "ACCOUNT", conflicts_with = "kind")]
    pub(crate) account: Option<String>,
    /// Kind of a token without an account: admin (all rights) or worker
    #[arg(long, value_name = "KIND", value_parser = kind_without_account)]
    pub(crate) kind: Option<TokenKind>,
    /// Name of the bearer of an admin or worker token [default: the kind]
    #[arg(long, value_name = "NAME", requires = "kind")]
    pub(crate) name: Option<String>,
    /// Purpose of the token, at most 200 characters
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Role that limits the token: it never has more rights than this role [default: no limit]
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
    /// Namespace that limits the token; repeatable [default: no limit]
    #[arg(long = "limit-namespace", value_name = "NAMESPACE")]
    pub(crate) namespaces: Vec<String>,
    /// Time until the token expires, at most 366d for an account [default: 90d; admin and worker tokens: never]
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires_in: Option<Duration>,
}

/// Parses a rule: `read,operate:jobs,runs`.
fn rule(text: &str) -> Result<RoleRule, String> {
    let (verbs, resources) =
        text.split_once(':').ok_or("expected VERBS:RESOURCES, for example `read,operate:jobs,runs`")?;
    Ok(RoleRule { verbs: listed(verbs)?, resources: listed(resources)? })
}

/// Parses words that are separated by commas.
fn listed<T: FromStr<Err = model::status::UnknownWord>>(text: &str) -> Result<Vec<T>, String> {
    text.split(',').map(|word| word.trim().parse().map_err(|error: T::Err| error.to_string())).collect()
}

fn kind_without_account(text: &str) -> Result<TokenKind, String> {
    match text.parse() {
        Ok(kind @ (TokenKind::Admin | TokenKind::Worker)) => Ok(kind),
        Ok(_) => Err("expected admin or worker; `--account` creates a token of an account".into()),
        Err(_) => Err("expected admin or worker".into()),
    }
}

/// Returns the commands that need a verb, which users type instead of it.
const fn commands_of(verb: Verb) -> &'static [&'static str] {
    match verb {
        Verb::Read => &["get", "list", "watch"],
        Verb::Operate => &[
            "cancel", "retry", "pause", "resume", "trigger", "start", "approve", "reject", "drain", "cordon",
        ],
        Verb::Create => &["submit"],
        Verb::Change => &["update", "apply", "set"],
        Verb::Delete | Verb::Work => &[],
    }
}

/// Returns a parser that completes and suggests verbs.
fn verb() -> impl TypedValueParser<Value = Verb> {
    let value = |verb: &Verb| PossibleValue::new(verb.as_str()).aliases(commands_of(*verb));
    PossibleValuesParser::new(Verb::ALL.iter().map(value)).try_map(|text| {
        let named = |verb: &Verb| commands_of(*verb).contains(&text.as_str());
        Verb::ALL.iter().copied().find(named).map_or_else(|| text.parse::<Verb>(), Ok)
    })
}

/// Returns a parser that completes and suggests resources. It also accepts the singular: `job`.
fn resource() -> impl TypedValueParser<Value = Resource> {
    let singular = |resource: &Resource| resource.as_str().strip_suffix('s').filter(|word| *word != "acces");
    let values = Resource::ALL
        .iter()
        .map(move |resource| PossibleValue::new(resource.as_str()).aliases(singular(resource)));
    PossibleValuesParser::new(values).try_map(move |text| {
        let found = Resource::ALL.iter().find(|resource| singular(resource) == Some(&text));
        found.map_or_else(|| text.parse::<Resource>(), |resource| Ok(*resource))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn parsed(line: &str) -> Result<Command, String> {
        Cli::try_parse_from(line.split(' ')).map(|cli| cli.command).map_err(|error| error.to_string())
    }

    #[test]
    fn a_rule_is_each_verb_on_each_resource() {
        let read = RoleRule { verbs: vec![Verb::Read], resources: vec![Resource::Logs] };
        assert_eq!(rule("read:logs"), Ok(read));
        let several = RoleRule {
            verbs: vec![Verb::Read, Verb::Operate],
            resources: vec![Resource::Jobs, Resource::Runs],
        };
        assert_eq!(rule("read,operate:jobs,runs"), Ok(several.clone()));
        assert_eq!(rule("read, operate: jobs, runs"), Ok(several));
    }

    #[test]
    fn a_wrong_rule_names_the_expected_words() {
        assert!(rule("read").unwrap_err().contains("expected VERBS:RESOURCES"));
        assert!(rule("get:jobs").unwrap_err().contains("`get` is not a verb: expected one of read,"));
        assert!(rule("read:pods").unwrap_err().contains("`pods` is not a resource: expected one of jobs,"));
        for empty in ["", ":", "read:", ":jobs", "read,:jobs"] {
            assert!(rule(empty).is_err(), "{empty}");
        }
    }

    #[test]
    fn rules_of_a_role_are_repeatable_and_required() {
        let Ok(Command::Role(RoleCommand::Set(args))) =
            parsed("belfry role set x --rule read:jobs --rule read:logs,events")
        else {
            panic!("not a role")
        };
        assert_eq!(args.rules.len(), 2);
        assert!(parsed("belfry role set x").unwrap_err().contains("--rule <VERBS:RESOURCES>"));
    }

    #[test]
    fn a_resource_may_be_singular_and_unknown_words_list_the_known_ones() {
        let asked = |line| match parsed(line) {
            Ok(Command::Auth(AuthCommand::CanI(args))) => Ok((args.verb, args.resource)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        assert_eq!(asked("belfry auth can-i create job"), Ok((Verb::Create, Resource::Jobs)));
        assert_eq!(asked("belfry auth why read access"), Ok((Verb::Read, Resource::Access)));
        assert_eq!(asked("belfry auth can-i cancel jobs"), Ok((Verb::Operate, Resource::Jobs)));
        assert_eq!(asked("belfry auth can-i submit jobs"), Ok((Verb::Create, Resource::Jobs)));
        assert_eq!(asked("belfry auth can-i get jobs"), Ok((Verb::Read, Resource::Jobs)));
        assert!(asked("belfry auth can-i fly jobs").unwrap_err().contains("read, operate, create"));
        assert!(asked("belfry auth can-i read pods").unwrap_err().contains("jobs, executions, logs"));
    }

    #[test]
    fn a_token_has_an_account_or_a_kind() {
        assert!(parsed("belfry token create --kind worker --name zone-a").is_ok());
        assert!(parsed("belfry token create --account ann --kind admin").is_err());
        assert!(parsed("belfry token create --name ann").is_err());
        assert!(parsed("belfry token create --kind user").unwrap_err().contains("--account"));
        let Ok(Command::Token(TokenCommand::Create(args))) = parsed("belfry token create --expires-in 30d")
        else {
            panic!("not a token")
        };
        assert_eq!(args.expires_in, Some(Duration::from_hours(30 * 24)));
    }
}
