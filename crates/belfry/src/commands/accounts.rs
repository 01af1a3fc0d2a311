//! `belfry account`: lists, creates, changes, invites and deletes accounts.
//!
//! The link of an invitation goes to standard output alone, as the secret of a token.

use client::{AccountFilter, Client};
use model::access::AccountKind;
use model::api::{Account, ChangeAccount, ChangePassword, CreateAccount, CreateInvitation};
use serde::Serialize;

use super::login::ask_secret;
use super::{Context, confirm, for_each_item};
use crate::args::access::{AccountCommand, AccountInviteArgs, AccountUpdateArgs};
use crate::failure::Failure;
use crate::output::text::escape;
use crate::output::time::exact;
use crate::output::{Format, value};

pub(super) async fn run(context: &Context, command: AccountCommand) -> Result<(), Failure> {
    // Before the server is asked.
    if let AccountCommand::Delete { names, yes: false } = &command {
        let shown: Vec<_> = names.iter().map(|name| escape(name)).collect();
        confirm(&format!("delete account {}", shown.join(", ")), "no account was deleted")?;
    }
    let (client, namespace) = context.connect()?;
    match command {
        AccountCommand::List { text } => {
            // An account belongs to no namespace, so the namespace of the context is no filter.
            let namespace = namespace.filter().filter(|_| namespace.by_flag());
            let accounts = client.accounts(&AccountFilter { text, namespace }).await?;
            context.out.list(&accounts.items, "accounts")
        }
        AccountCommand::Get(args) => context.out.one(&client.account(&args.name).await?),
        AccountCommand::Create(args) => {
            let kind = if args.service { AccountKind::Service } else { AccountKind::User };
            let create =
                CreateAccount { name: args.name, kind, title: args.title, submit_rate: args.submit_rate };
            let account = client.create_account(&create).await?;
            context.out.one(&account)?;
            let name = escape(&account.name);
            context.out.note(format!(
                "next: `belfry role bind ROLE {name} -n NAMESPACE`, {}",
                match kind {
                    AccountKind::User => format!("`belfry account invite {name}`"),
                    AccountKind::Service => format!("`belfry token create --account {name}`"),
                }
            ));
            Ok(())
        }
        AccountCommand::Invite(args) => invite(context, &client, args).await,
        AccountCommand::Password => change_password(context, &client).await,
        AccountCommand::ResetTotp(args) => {
            client.reset_totp(&args.name).await?;
            context.out.note(format!("deleted the second factor of account {}", escape(&args.name)));
            Ok(())
        }
        AccountCommand::Unlink(args) => {
            client.unlink_account(&args.name).await?;
            context.out.note(format!("unlinked account {} from the OpenID provider", escape(&args.name)));
            Ok(())
        }
        AccountCommand::Logout { names } => {
            let names = if names.is_empty() { vec![client.me().await?.name] } else { names };
            let (_, result) = for_each_item(context.out, names, async |name: String| {
                client.end_sessions(&name).await?;
                context.out.note(format!("ended the sessions of account {}", escape(&name)));
                Ok(())
            })
            .await;
            result
        }
        AccountCommand::Update(args) => context.out.one(&update(&client, args).await?),
        AccountCommand::Delete { names, .. } => {
            let (_, result) = for_each_item(context.out, names, async |name: String| {
                client.delete_account(&name).await?;
                context.out.note(format!("deleted account {}", escape(&name)));
                Ok(())
            })
            .await;
            result
        }
    }
}

/// Link of an invitation, as programs get it.
#[derive(Serialize)]
struct Link<'a> {
    account: &'a str,
    link: &'a str,
    expires_at: model::Timestamp,
}

async fn invite(context: &Context, client: &Client, args: AccountInviteArgs) -> Result<(), Failure> {
    let out = context.out;
    let AccountInviteArgs { name, expires_in, reset, revoke } = args;
    if revoke {
        client.revoke_invitation(&name).await?;
        out.note(format!("revoked the invitation of account {}", escape(&name)));
        return Ok(());
    }
    let created = client.invite(&name, &CreateInvitation { expires_in, reset }).await?;
    // The part after `#` is not sent to any server, so the secret is in no log of addresses.
    let link = format!("{}/#invite={}", client.url(), created.secret);
    if matches!(out.look.format, Format::Json | Format::Yaml) {
        let shown = Link { account: &created.account, link: &link, expires_at: created.expires_at };
        return out.data(value(&out.look, &shown)?);
    }
    out.data(format!("{link}\n"))?;
    let account = escape(&created.account);
    out.note(format!(
        "send the link to {account}: it works once, until {}",
        exact(&out.look, created.expires_at)
    ));
    if reset {
        out.note(format!("the password of {account} is deleted, and the sessions have ended"));
    }
    Ok(())
}

async fn change_password(context: &Context, client: &Client) -> Result<(), Failure> {
    if client.is_plaintext() {
        context.out.warn(format!("the passwords are sent unencrypted to {}", client.url()));
    }
    let current = ask_secret("Current password: ").await?;
    let new = ask_secret("New password: ").await?;
    if ask_secret("Repeat the new password: ").await? != new {
        return Err(Failure::usage("the two new passwords differ"));
    }
    client.change_password(&ChangePassword { current, new }).await?;
    context.out.note("changed the password; your other sessions have ended");
    Ok(())
}

async fn update(client: &Client, args: AccountUpdateArgs) -> Result<Account, Failure> {
    let disabled = (args.disable || args.enable).then_some(args.disable);
    let change = ChangeAccount { title: args.title, disabled, submit_rate: args.submit_rate };
    if change == ChangeAccount::default() {
        let help = "use `--title`, `--disable`, `--enable` or `--submit-rate`";
        return Err(Failure::usage("nothing to change").help(help));
    }
    Ok(client.change_account(&args.name, &change).await?)
}
