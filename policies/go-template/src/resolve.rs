//! What the engine finds only when it renders, or not at all: functions and variables that there are not.
//!
//! Go finds both when it parses, and an operator wants to hear of them when the settings are checked. On the way, each
//! field that is none of the variables becomes a call of [`functions::ATTRIBUTE`], which knows the variables, where a name
//! that is not there is an error, from attributes, where it is none. The engine has one rule for all maps.

use gotmpl::parse::{
    BranchNode, CommandNode, Expr, ListNode, Node, Number, PipeNode, Pos, SmolStr, TemplateNode,
};

use crate::actions::place;
use crate::{functions, template};

/// Walks one template, the whole one or a `define` of it, written in `text`.
pub(crate) fn resolve(text: &str, tree: &mut ListNode) -> Result<(), String> {
    let variables = vec![SmolStr::new_static("$")];
    Resolver { text, variables }.list(tree)
}

struct Resolver<'a> {
    text: &'a str,
    /// Declared, and not out of scope.
    variables: Vec<SmolStr>,
}

impl Resolver<'_> {
    fn list(&mut self, list: &mut ListNode) -> Result<(), String> {
        list.nodes.iter_mut().try_for_each(|node| match node {
            Node::Action(action) => {
                self.pipe(&mut action.pipe)?;
                write_as_go(&mut action.pipe);
                Ok(())
            }
            Node::If(branch) | Node::With(branch) | Node::Range(branch) => self.branch(branch),
            Node::Template(TemplateNode { pos, pipe, .. }) => match pipe {
                Some(pipe) => self.pipe(pipe),
                // Without a value, the engine hands its own on, and Go hands on none.
                None => {
                    *pipe = Some(pipe_of(*pos, call(*pos, functions::NOTHING, [])));
                    Ok(())
                }
            },
            Node::List(list) => self.list(list),
            Node::Define(define) => self.list(&mut define.body),
            Node::Text(_) | Node::Break(_) | Node::Continue(_) => Ok(()),
        })
    }

    fn branch(&mut self, branch: &mut BranchNode) -> Result<(), String> {
        let outside = self.variables.len();
        self.pipe(&mut branch.pipe)?;
        self.list(&mut branch.body)?;
        if let Some(other) = &mut branch.else_body {
            self.list(other)?;
        }
        self.variables.truncate(outside);
        Ok(())
    }

    fn pipe(&mut self, pipe: &mut PipeNode) -> Result<(), String> {
        for name in &pipe.decl {
            if pipe.is_assign {
                self.known(pipe.pos, name)?;
            } else {
                self.variables.push(name.clone());
            }
        }
        for (stage, CommandNode { pos, args }) in pipe.commands.iter_mut().enumerate() {
            let first = args.first().filter(|_| stage > 0);
            if first.is_some_and(is_literal) {
                return self.wrong(*pos, "what stands after a | must be a function");
            }
            args.iter_mut().try_for_each(|arg| self.expression(arg))?;
        }
        Ok(())
    }

    fn expression(&mut self, expression: &mut Expr) -> Result<(), String> {
        match expression {
            Expr::Identifier(at, name)
                if !functions::NAMES.split(' ').any(|known| known == name) =>
            {
                let all = functions::NAMES.replace(' ', ", ");
                let why = format!("there is no function {name:?}; the functions are {all}");
                return self.wrong(*at, &why);
            }
            Expr::Number(at, number) if !self.is_number(*at, number) => {
                return self.wrong(*at, "this is no number that Go reads");
            }
            Expr::Variable(at, name, _) => self.known(*at, name)?,
            Expr::Pipe(_, pipe) => self.pipe(pipe)?,
            Expr::Chain(_, inner, _) => self.expression(inner)?,
            Expr::Identifier(..)
            | Expr::Field(..)
            | Expr::Dot(_)
            | Expr::String(..)
            | Expr::Number(..)
            | Expr::Bool(..)
            | Expr::Nil(_) => {}
        }
        ask_for_attribute(expression);
        Ok(())
    }

    fn known(&self, at: Pos, name: &SmolStr) -> Result<(), String> {
        if self.variables.contains(name) {
            return Ok(());
        }
        self.wrong(at, &format!("there is no variable {name}"))
    }

    /// The engine reads `1e400` and `08`; Go does not.
    fn is_number(&self, at: Pos, number: &Number) -> bool {
        if let Number::Float(value) = number {
            return value.is_finite();
        }
        let written = self.text.as_bytes().get(at.offset..).unwrap_or_default();
        let written = match written {
            [b'+' | b'-', rest @ ..] => rest,
            all => all,
        };
        let digits = |byte: &&u8| byte.is_ascii_digit() || **byte == b'_';
        let mut digits = written.iter().take_while(digits);
        digits.next() != Some(&b'0') || !digits.any(|digit| b"89".contains(digit))
    }

    fn wrong(&self, at: Pos, why: &str) -> Result<(), String> {
        Err(format!("{}: {why}", place(self.text, at.offset)))
    }
}

fn is_literal(expression: &Expr) -> bool {
    match expression {
        Expr::Bool(..) | Expr::Dot(_) | Expr::Nil(_) | Expr::Number(..) | Expr::String(..) => true,
        Expr::Field(..)
        | Expr::Variable(..)
        | Expr::Identifier(..)
        | Expr::Pipe(..)
        | Expr::Chain(..) => false,
    }
}

/// Lets a function write what may be a number, or hold some.
fn write_as_go(pipe: &mut PipeNode) {
    let last = pipe
        .commands
        .last()
        .and_then(|command| command.args.first());
    let is_plain = match last {
        Some(Expr::Identifier(_, name)) => !["and", "call", "index", "or"].contains(&name.as_str()),
        Some(Expr::Field(_, fields)) => {
            matches!(fields.as_slice(), [name] if template::TEXTS.contains(&name.as_str()))
        }
        Some(_) | None => false,
    };
    if pipe.decl.is_empty() && !is_plain {
        pipe.commands.push(call(pipe.pos, functions::TEXT, []));
    }
}

fn call(at: Pos, function: &'static str, args: impl IntoIterator<Item = Expr>) -> CommandNode {
    let function = Expr::Identifier(at, SmolStr::new_static(function));
    CommandNode {
        pos: at,
        args: [function].into_iter().chain(args).collect(),
    }
}

fn pipe_of(at: Pos, command: CommandNode) -> PipeNode {
    PipeNode {
        pos: at,
        decl: Vec::new(),
        commands: vec![command],
        is_assign: false,
    }
}

/// Of `.rack.x` makes `(attribute of . "rack").x`. What follows a name of a variable is the engine's: it is of an attribute
/// or of what has no fields.
fn ask_for_attribute(expression: &mut Expr) {
    let (at, of, fields) = match expression {
        Expr::Field(at, fields) => (*at, Expr::Dot(*at), fields),
        Expr::Variable(at, name, fields) => {
            let of = Expr::Variable(*at, name.clone(), Vec::new());
            (*at, of, fields)
        }
        Expr::Chain(at, inner, fields) if matches!(**inner, Expr::Pipe(..)) => {
            (*at, (**inner).clone(), fields)
        }
        Expr::Chain(..)
        | Expr::Identifier(..)
        | Expr::Pipe(..)
        | Expr::Dot(_)
        | Expr::String(..)
        | Expr::Number(..)
        | Expr::Bool(..)
        | Expr::Nil(_) => return,
    };
    let Some((name, rest)) = fields.split_first() else {
        return;
    };
    if template::VARIABLES.contains(&name.as_str()) {
        return;
    }
    let name = Expr::String(at, name.as_str().into());
    let pipe = pipe_of(at, call(at, functions::ATTRIBUTE, [of, name]));
    let asked = Expr::Pipe(at, pipe);
    *expression = match rest {
        [] => asked,
        rest => Expr::Chain(at, Box::new(asked), rest.to_vec()),
    };
}
