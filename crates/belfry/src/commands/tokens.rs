//! `belfry token`: lists, creates and revokes tokens.
//!
//! The secret of a new token goes to standard output alone, so that a shell can read it into a variable or a file. No
//! note and no error contains it.

use client::{Client, TokenFilter};
use model::api::{CreateToken, CreatedToken, TokenStatus};

use super::{Context, for_each_item};
use crate::args::access::{TokenCommand, TokenCreateArgs};
use crate::failure::Failure;
use crate::output::access::token_note;
use crate::output::text::escape;
use crate::output::{Format, value};

/// Fields of the request, and the options that set them.
const OPTIONS: &[(&str, &str)] = &[
    ("account", "--account"),
    ("bearer", "--account or --name"),
    ("description", "--description"),
    ("expires_at", "--expires-in"),
    ("expires_in", "--expires-in"),
    ("kind", "--kind"),
    ("name", "--name"),
    ("scope.namespaces", "--limit-namespace"),
    ("scope", "--role or --limit-namespace"),
];

pub(super) async fn run(context: &Context, command: TokenCommand) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    match command {
        TokenCommand::List(args) => {
            let statuses = if args.all { TokenStatus::ALL } else { &[TokenStatus::Active] };
            let filter = TokenFilter { name: args.name, kinds: args.kinds, statuses: statuses.to_vec() };
            context.out.list(&client.tokens(&filter).await?.items, "tokens")
        }
        TokenCommand::Get { id } => context.out.one(&client.token(&id).await?),
        TokenCommand::Create(args) => show(context, &create(&client, args).await?),
        TokenCommand::Revoke { ids } => {
            let (_, result) = for_each_item(context.out, ids, async |id: String| {
                client.revoke_token(&id).await?;
                context.out.note(format!("revoked token {}", escape(&id)));
                Ok(())
            })
            .await;
            result
        }
    }
}

async fn create(client: &Client, args: TokenCreateArgs) -> Result<CreatedToken, Failure> {
    let create = CreateToken {
        account: args.account,
        kind: args.kind,
        name: args.name,
        description: args.description,
        role: args.role,
        namespaces: args.namespaces,
        expires_in: args.expires_in,
    };
    client.create_token(&create).await.map_err(|error| with_options(error.into()))
}

/// Replaces the names of invalid fields by the options that set them.
fn with_options(mut failure: Failure) -> Failure {
    for field in failure.fields_mut() {
        let path = field.path.split('[').next().unwrap_or_default();
        if let Some((_, option)) = OPTIONS.iter().find(|(known, _)| *known == path) {
            field.path = (*option).to_owned();
        }
    }
    failure
}

/// Writes the secret. Only `json` and `yaml` have the whole object; the name of a token without its secret would be of no
/// use.
fn show(context: &Context, created: &CreatedToken) -> Result<(), Failure> {
    let out = context.out;
    if matches!(out.look.format, Format::Json | Format::Yaml) {
        return out.data(value(&out.look, created)?);
    }
    out.data(format!("{}\n", created.secret))?;
    out.note(token_note(&created.token));
    out.note("store the token now: the server cannot show it again");
    Ok(())
}

#[cfg(test)]
mod tests {
    use model::api::FieldError;

    use super::*;

    #[test]
    fn an_invalid_field_is_named_as_its_option() {
        let field = |path: &str| FieldError {
            pointer: String::new(),
            path: path.to_owned(),
            detail: "is wrong".to_owned(),
        };
        let fields = ["account", "expires_at", "scope.namespaces[1]", "new_field"].map(field).into();
        let failure = with_options(Failure::usage("invalid spec").fields(fields));
        insta::assert_snapshot!(failure.render(false), @r"
        error: invalid spec
          --account: is wrong
          --expires-in: is wrong
          --limit-namespace: is wrong
          new_field: is wrong
        ");
    }
}
