"""Lines that only a program, a query or a diff has. Each is tried at the start of a line, behind its indentation."""

_INDENT = r"^(?:[>+|-]|[ \t]*\d{1,5}(?:\t| ?[|:→]))?[ \t]*"
"""A line may be quoted, of a diff, or numbered."""
_NAME = r"[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)\w+)*"
_END = r"[ \t]*(?:(?://|#|--)[^\n]*)?\r?$"
"""A remark may follow."""
_MODIFIERS = (
    r"(?:(?:public|private|protected|internal|static|final|abstract|virtual|override|async|export|default|declare"
    r"|readonly|inline|extern|pub(?:\(\w+\))?|unsafe|open|sealed|data|suspend|const|constexpr)[ \t]+)+"
)
_PYTHON = (
    r"(?:async )?def \w+\s*\(",
    rf"class \w+(?:\([^)\n]*\))?:{_END}",
    r"from \.*[\w.]+ import [\w*(]",
    r"import [\w.]+(?: as \w+)?(?:, [\w.]+)*;?\r?$",
    r"@[A-Za-z_][\w.]*\(",
    rf"(?:if|elif|while|match|case)\b[^\n]*[()=<>\[\]_\"'!][^\n]*:{_END}",
    rf"for \w+(?:, ?\w+)* in [^\n]+:{_END}|with [^\n]+\)(?: as \w+)?:{_END}",
    rf"except(?: [\w., ()]+)?:{_END}|(?:try|else|finally):{_END}",
    r"[\w.]+ = [\[{(][^\n]* for \w+ in ",
    r"\w+: (?:str|int|float|bool|bytes|dict|list|set|Any|Optional|Literal|Required|List|Dict|Tuple|Union|Callable)\b"
    r"(?:\[[^\n]*\])?(?: \| \w+)*(?: = [^\n]+)?\r?$",
)
_STATEMENTS = (
    rf"return(?: [\w.]+)?;?{_END}|return \(\r?$|return nil\b",
    r"return [^\n]*(?:\w\(|\[|[=!<>]=|[{;]$| [-+*/%] |&&|\|\|)[^\n]*$",
    r"raise \w+\(|throw new \w+|(?:await|yield) \w+[.(]|assert \w+[^\n]*(?:==|\()|(?:self|this)\.\w+|defer \w",
    r"[\w.\[\]'\"$*&]+(?:[ \t]*:[ \t]*[\w\[\], .|?<>]+)?[ \t]*(?:[-+*/%&|^:]|<<|>>|\?\?|\|\|)?="
    r"[ \t]*(?:await |new |not |[&*!-])*[\w.$:>\[\]-]*\w!?[(\[][^\n]*$",
    r"[\w.]+ [-+*/]?= [\w.]+(?: [-+*/%] [\w.]+)+;?\r?$|[\w, ]+ := [^\n]+",
    rf"{_NAME}!?\([^\n]*\)[;,]?{_END}|\.\w+\([^\n]*\)[;,]?\r?$",
    rf"[^\n]*\w\([^\n]*\)[^\n]*;{_END}",
    rf"[^\n]*[\w)\]\"'][ \t]?[-+*/|&:]?=[ \t]?[^\n]*;{_END}",
    rf"[^\n]*(?:\+\+|--);{_END}|\w+\??: [\w\[\]<>| ]+;\r?$",
    r"(?:print|printf|puts) [\"'$\\][^\n]*\r?$|echo [^\n]*;\r?$",
)
_BRACES = (
    r"[^\n]*\)[ \t]*(?:const|noexcept|override|throws [\w, .]+|(?:->|:) ?[\w<>&:\[\], |?]+|\(?[\w*., \[\]]+\)?)?"
    rf"[ \t]*\{{{_END}",
    rf"[^\n]*=>[ \t]*[{{(]?{_END}|[^\n]+ => [^\n]+,\r?$",
    rf"\}}[ \t]*(?:else|catch|finally|while)\b|(?:else|do|try|finally)[ \t]*\{{{_END}|\}}\)+[;,]?\r?$|\}};\r?$",
    rf"(?:if|for|foreach|while|switch|match|loop|unless|guard)\b[^\n]*\{{{_END}",
    r"#!?\[\w|pub \w+: |param\(|<\w+[^\n]*=\{[^\n]*>\r?$|/\*\*\r?$|\*+/\r?$|\* @\w+|template ?<|[^\n]*\bstd::\w",
)
_DECLARATIONS = (
    r"@(?:Override|Test|Bean|Autowired|Inject|Entity|Component|dataclass|property|staticmethod|classmethod|cache)\r?$",
    r"#[ \t]*(?:include[ \t]*[<\"]|define \w|ifn?def \w|pragma |endif\b)",
    r"(?:using|package|namespace|import|use)[ \t]+(?:static |namespace )?[\w.:\\*]+(?:::\{[^\n]*\})?[ \t]*;\r?$",
    r"package \w+\r?$|namespace [\w.]+\r?$",
    rf"{_MODIFIERS}(?:class|interface|enum|struct|void|int|string|bool|boolean|double|float|char|long|auto|fn|function"
    r"|let|var|const|def|val|fun|func|type|[A-Z]\w*(?:<[^\n]*>)?|\w+\[\])\b[^\n]*[({;=,)>\]}:]\r?$",
    r"(?:const|let|var|val|auto)[ \t]+(?:mut )?[\w{}\[\], :<>|?]+=[ \t]*[^\n]+|static (?:void|int)\b",
    r"(?:function|filter) [\w:-]+ ?\{\r?$|function [\w, \[\]]+ ?= ?\w+\(",
    r"(?:function|func|fn|fun|sub)\b[ \t]*\*?[\w.$]*[ \t]*(?:<[^\n>]*>)?\(",
    r"(?:class|interface|struct|enum|trait|record|object|protocol|extension|union|type)[ \t]+[A-Z]\w*[^\n]*[{=]\r?$",
    r"(?:impl|trait|struct|enum|union)\b[^\n]*\{\r?$|(?:module|class) [A-Z]\w*(?: < [\w:]+)?\r?$",
    r"export (?:default|const|function|class|type|interface|async|\{)|import [^\n]* from [\"']|import [\"'{]",
    r"module\.exports|require(?:_relative)? [\"']|<\?php|\$\w+(?:->\w+|\[[^\n]*\])*[ \t]*[.+-]?=[^\n]*;\r?$",
)
_OTHERS = (
    # Ruby, Elixir, Perl
    r"def [\w.?!]+(?:\([^\n]*\))?\r?$|[^\n]*\bdo(?: \|[^\n]*\|)\r?$|end\r?$|attr_\w+ :|defmodule |(?:my|our) [$@%(]",
    # Lua, R, Haskell, PowerShell, Visual Basic
    r"local (?:function|\w+ =) |\w+ <- (?:function\(|\w+[(\[])|module [\w.]+ where|[\w']+ :: [\w(\[]",
    r"[A-Z]\w+-[A-Z]\w+ [$\"']|(?i:dim \w+ as |end (?:sub|function|if)\b)",
)
_SHELL = (
    r"#!/|(?:if|elif|while|until) (?:\[\[?|!|test|\(\() ?[^\n]*|(?:fi|done|esac|then|do)\r?$",
    r"for \w+ in [^\n]*; ?do\r?$|\w+ ?\(\)[ \t]*\{?\r?$|set -[euxo]+|(?:local )?\w+=\"?\$\(|case [^\n]+ in\r?$|;;\r?$",
)
_SQL = (
    r"(?i:select\b[^\n]*\bfrom\b)|SELECT\b|(?:FROM|from) [\w.\"`\[\]]+(?: (?:AS |as )?\w{1,3})?,?\r?$",
    r"(?i:insert into \S+ ?\(|delete from \w|update \S+ set\b|alter table [\w\"]|drop table \w)",
    r"(?i:create (?:or replace |unique )?(?:table|view|index|function|procedure|trigger|type)\b)",
    r"(?i:(?:(?:left|right|inner|outer|full|cross) )*join \S+[^\n]* on )",
    r"(?:WHERE|AND|OR|ON|HAVING|where|having)\b[^\n]*(?:[=<>]|\bLIKE\b|\bIN \(|\bBETWEEN\b|\bIS\b)",
    r"(?:GROUP|ORDER) BY\b|VALUES ?\(|LIMIT \d|WITH \w+ AS \(",
    r"[\"`]?\w+[\"`]? (?:TEXT|INTEGER|INT|BIGINT|VARCHAR|TIMESTAMP|BOOLEAN|NUMERIC|SERIAL|UUID|JSONB?|DATE)\b"
    r"[^\n]*[,)]?\r?$",
)
_DIFF = (r"diff --git |@@ -\d+(?:,\d+)? \+\d+",)
_ALL = (*_PYTHON, *_STATEMENTS, *_BRACES, *_DECLARATIONS, *_OTHERS, *_SHELL, *_SQL, *_DIFF)
LINE = rf"(?m:{_INDENT}(?:{'|'.join(_ALL)}))"
LICENCE = (
    r"(?m:^[ \t]*(?://+|#+|/?\*+|--+|;+|<!--|%+|(?i:rem)|'|\"{3}|dnl)[ \t!*]*(?i:SPDX-License-Identifier:"
    r"|copyright[ \t]+(?:\(c\)|©|\d{4})|licensed under the |permission is hereby granted|all rights reserved"
    r"|this (?:file|program|software|source code|code) is "
    r"(?:part of|free software|confidential|proprietary|subject to|licensed)"
    r"|(?:proprietary|confidential) and (?:proprietary|confidential)|unauthorized (?:copying|use) of this)[^\n]*)"
    r"|(?i:\bunauthorized copying of this (?:file|source|code|software)\b)"
)
"""Within a comment, or about a file."""
