//! Fields of a runtime whose references are replaced.

use crate::spec::Run;

/// Field of [`Run`] that may have references. Program texts are not among them.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RunField {
    Image,
    Command(usize),
    Entrypoint(usize),
    Env(String),
    WorkingDirectory,
    Stdin,
    User,
    Url,
    Header(String),
    Body,
}

impl RunField {
    /// Returns the path of the field in its runtime.
    pub(super) fn path(&self) -> String {
        match self {
            Self::Image => "image".into(),
            Self::Command(i) => format!("command[{i}]"),
            Self::Entrypoint(i) => format!("entrypoint[{i}]"),
            Self::Env(name) => format!("env.{name}"),
            Self::WorkingDirectory => "working_directory".into(),
            Self::Stdin => "stdin".into(),
            Self::User => "user".into(),
            Self::Url => "url".into(),
            Self::Header(name) => format!("headers.{name}"),
            Self::Body => "body".into(),
        }
    }

    /// Returns all fields of `run` with their texts.
    pub(super) fn all(run: &Run) -> Vec<(Self, &str)> {
        let mut all: Vec<(Self, &str)> = Vec::new();
        match run {
            Run::Process(process) => {
                all.extend(words(&process.command).map(|(i, text)| (Self::Command(i), text)));
                all.extend(process.env.iter().map(|(name, text)| (Self::Env(name.clone()), text.as_str())));
                all.extend(
                    process.working_directory.iter().map(|text| (Self::WorkingDirectory, text.as_str())),
                );
                all.extend(process.stdin.iter().map(|text| (Self::Stdin, text.as_str())));
            }
            Run::Container(container) => {
                all.push((Self::Image, &container.image));
                all.extend(words(&container.command).map(|(i, text)| (Self::Command(i), text)));
                all.extend(words(&container.entrypoint).map(|(i, text)| (Self::Entrypoint(i), text)));
                all.extend(container.env.iter().map(|(name, text)| (Self::Env(name.clone()), text.as_str())));
                all.extend(
                    container.working_directory.iter().map(|text| (Self::WorkingDirectory, text.as_str())),
                );
                all.extend(container.user.iter().map(|text| (Self::User, text.as_str())));
            }
            Run::Http(http) => {
                all.push((Self::Url, &http.url));
                all.extend(
                    http.headers.iter().map(|(name, text)| (Self::Header(name.clone()), text.as_str())),
                );
                all.extend(http.body.iter().map(|text| (Self::Body, text.as_str())));
            }
        }
        all
    }

    /// Returns the text of the field in `run`; `None` if its runtime does not have the field.
    pub(super) fn of(self, run: &mut Run) -> Option<&mut String> {
        match (self, run) {
            (Self::Command(i), Run::Process(process)) => process.command.get_mut(i),
            (Self::Env(name), Run::Process(process)) => process.env.get_mut(&name),
            (Self::WorkingDirectory, Run::Process(process)) => process.working_directory.as_mut(),
            (Self::Stdin, Run::Process(process)) => process.stdin.as_mut(),
            (Self::Image, Run::Container(container)) => Some(&mut container.image),
            (Self::Command(i), Run::Container(container)) => container.command.get_mut(i),
            (Self::Entrypoint(i), Run::Container(container)) => container.entrypoint.get_mut(i),
            (Self::Env(name), Run::Container(container)) => container.env.get_mut(&name),
            (Self::WorkingDirectory, Run::Container(container)) => container.working_directory.as_mut(),
            (Self::User, Run::Container(container)) => container.user.as_mut(),
            (Self::Url, Run::Http(http)) => Some(&mut http.url),
            (Self::Header(name), Run::Http(http)) => http.headers.get_mut(&name),
            (Self::Body, Run::Http(http)) => http.body.as_mut(),
            _ => None,
        }
    }
}

fn words(list: &[String]) -> impl Iterator<Item = (usize, &str)> {
    list.iter().enumerate().map(|(i, text)| (i, text.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{ContainerRun, HttpRun, ProcessRun};

    /// C2. Each field that is found can also be replaced.
    #[test]
    fn every_field_of_every_runtime_can_be_replaced() {
        let one = |name: &str| [(name.to_owned(), "x".to_owned())].into();
        let text = || Some("x".to_owned());
        let runs = [
            Run::Process(ProcessRun {
                command: vec!["x".into()],
                env: one("A"),
                working_directory: text(),
                stdin: text(),
                ..ProcessRun::default()
            }),
            Run::Container(Box::new(ContainerRun {
                image: "x".into(),
                command: vec!["x".into()],
                entrypoint: vec!["x".into()],
                env: one("A"),
                working_directory: text(),
                user: text(),
                ..ContainerRun::default()
            })),
            Run::Http(Box::new(HttpRun {
                url: "x".into(),
                headers: one("A"),
                body: text(),
                ..HttpRun::default()
            })),
        ];
        let counts: Vec<_> = runs.iter().map(|run| RunField::all(run).len()).collect();
        assert_eq!(counts, [4, 6, 3]);
        for mut run in runs {
            let fields: Vec<_> = RunField::all(&run).into_iter().map(|(field, _)| field).collect();
            for field in fields {
                *field.of(&mut run).unwrap() = "y".into();
            }
            assert!(RunField::all(&run).iter().all(|(_, text)| *text == "y"), "{run:?}");
        }
    }
}
