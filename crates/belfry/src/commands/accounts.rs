//! `belfry account`: lists, creates, changes and deletes accounts.

use client::{AccountFilter, Client};
use model::access::AccountKind;
use model::api::{Account, ChangeAccount, CreateAccount};

use super::{Context, confirm, for_each_item};
use crate::args::access::{AccountCommand, AccountUpdateArgs};
use crate::failure::Failure;
use crate::output::text::escape;

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
                "next: `belfry role bind ROLE {name} -n NAMESPACE`, `belfry token create --account {name}`"
            ));
            Ok(())
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

async fn update(client: &Client, args: AccountUpdateArgs) -> Result<Account, Failure> {
    let disabled = (args.disable || args.enable).then_some(args.disable);
    let change = ChangeAccount { title: args.title, disabled, submit_rate: args.submit_rate };
    if change == ChangeAccount::default() {
        let help = "use `--title`, `--disable`, `--enable` or `--submit-rate`";
        return Err(Failure::usage("nothing to change").help(help));
    }
    Ok(client.change_account(&args.name, &change).await?)
}
