//! `belfry auth`: shows the caller, and checks whether an action is allowed.

use client::AccessQuestion;
use model::api::{AccessDecision, Code};

use super::Context;
use crate::args::access::AuthCommand;
use crate::failure::{Exit, Failure};
use crate::output::access::Caller;
use crate::output::text::escape;
use crate::output::{Format, value};

pub(super) async fn run(context: &Context, command: AuthCommand) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    match command {
        AuthCommand::Whoami => {
            let me = client.me().await.map_err(refused)?;
            context.out.one(&Caller { me, url: client.url().to_owned() })
        }
        AuthCommand::CanI(args) => {
            let question = AccessQuestion {
                verb: args.verb,
                resource: args.resource,
                namespace: namespace.filter(),
                account: args.account,
            };
            answer(context, &client.check_access(&question).await?)
        }
    }
}

/// Every account may ask about itself, so only a worker token is denied. The usual hint names this very command.
fn refused(error: client::Error) -> Failure {
    let denied = error.code() == Some(Code::Forbidden.as_str());
    let failure = Failure::from(error);
    if denied {
        return failure
            .help("a worker token only connects workers; use the token of an account, or an admin token");
    }
    failure
}

/// Writes `yes` or `no`. A denial is not an error: its reason is a note, and only the exit code is that of a failure.
fn answer(context: &Context, decision: &AccessDecision) -> Result<(), Failure> {
    let out = context.out;
    if matches!(out.look.format, Format::Json | Format::Yaml) {
        out.data(value(&out.look, decision)?)?;
    } else {
        out.data(if decision.allowed { "yes\n" } else { "no\n" })?;
        if let Some(reason) = &decision.reason {
            out.note(escape(reason));
        }
    }
    if decision.allowed { Ok(()) } else { Err(Failure::silent(Exit::Failed)) }
}
