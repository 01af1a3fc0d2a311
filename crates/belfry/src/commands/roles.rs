//! `belfry role`: lists, defines and deletes roles, and binds them to accounts and groups.
//!
//! A binding is in the namespace of `-n` or of the context; `*` stands for all namespaces and the cluster. As the default
//! of the context is not on the command line, each output names the namespace.

use client::{BindingFilter, Client};
use model::api::{PutBinding, PutRole, Role};

use super::{Context, Namespace, for_each_item};
use crate::args::access::{RoleBindArgs, RoleCommand, RoleSetArgs};
use crate::failure::Failure;
use crate::output::text::escape;

pub(super) async fn run(context: &Context, command: RoleCommand) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    match command {
        RoleCommand::List => context.out.list(&client.roles().await?.items, "roles"),
        RoleCommand::Get(args) => context.out.one(&client.role(&args.name).await?),
        RoleCommand::Set(args) => context.out.one(&set(&client, args).await?),
        RoleCommand::Delete { names } => {
            let (_, result) = for_each_item(context.out, names, async |name: String| {
                client.delete_role(&name).await?;
                context.out.note(format!("deleted role {}", escape(&name)));
                Ok(())
            })
            .await;
            result
        }
        RoleCommand::Bind(args) => context.out.row(&client.put_binding(&binding(args, &namespace)).await?),
        RoleCommand::Unbind(args) => {
            let binding = binding(args, &namespace);
            client.delete_binding(&binding).await?;
            context.out.note(unbound(&binding));
            Ok(())
        }
        RoleCommand::Bindings { account, group, role } => {
            let namespace = namespace.by_flag().then(|| namespace.name().to_owned());
            let bindings = client.bindings(&BindingFilter { account, group, role, namespace }).await?;
            context.out.list(&bindings.items, "role bindings")
        }
    }
}

fn binding(args: RoleBindArgs, namespace: &Namespace) -> PutBinding {
    let RoleBindArgs { role, account, group } = args;
    PutBinding { role, account, group, namespace: namespace.name().to_owned() }
}

fn unbound(PutBinding { role, account, group, namespace }: &PutBinding) -> String {
    let subject = match (account, group) {
        (Some(account), _) => account.clone(),
        (None, group) => format!("group {}", group.as_deref().unwrap_or_default()),
    };
    let place = match namespace.as_str() {
        "*" => "in all namespaces and the cluster (`*`)".to_owned(),
        name => format!("in namespace {name}"),
    };
    escape(&format!("unbound role {role} from {subject} {place}"))
}

/// Replaces the permissions of a role. Its description stays, unless the arguments have one.
async fn set(client: &Client, args: RoleSetArgs) -> Result<Role, Failure> {
    let description = match args.description {
        Some(text) => Some(text).filter(|text| !text.is_empty()),
        None => match client.role(&args.name).await {
            Err(error) if error.status() == Some(404) => None,
            // The server refuses a change of a built-in role.
            found => Some(found?).filter(|role| !role.built_in).and_then(|role| role.description),
        },
    };
    Ok(client.put_role(&args.name, &PutRole { description, rules: args.rules }).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_of_a_removed_binding_is_named() {
        let binding = |namespace: &str| PutBinding {
            role: "viewer".into(),
            account: Some("ann".into()),
            group: None,
            namespace: namespace.into(),
        };
        let (one, all) = (binding("default"), binding("*"));
        assert_eq!(unbound(&one), "unbound role viewer from ann in namespace default");
        assert_eq!(unbound(&all), "unbound role viewer from ann in all namespaces and the cluster (`*`)");
        let group = PutBinding { account: None, group: Some("devs".into()), ..one };
        assert_eq!(unbound(&group), "unbound role viewer from group devs in namespace default");
    }
}
