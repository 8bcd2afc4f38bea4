/** The command that decides a send, as a person can paste it; the reason is left to them. */
export function resolveLine(key: string, { decision, messageId }: { decision: string; messageId?: string | undefined }): string {
  const options = [
    `--decision ${decision}`,
    ...(messageId === undefined ? [] : [`--message-id ${shellQuoted(messageId)}`]),
    '--reason "…"',
  ]
  return lineOf('sends resolve', key, options)
}

/** A command with one argument; one that looks like an option stands behind them all. */
export function lineOf(verb: string, argument: string, options: readonly string[]): string {
  const quoted = shellQuoted(argument)
  const parts = argument.startsWith('-') ? [...options, '--', quoted] : [quoted, ...options]
  return ['oncehook', verb, ...parts].join(' ')
}

/** A text as bash and zsh read it back as one word; what can't be seen is written as its number. */
export function shellQuoted(text: string): string {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text
  if (!/[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/u.test(text.replaceAll(' ', ''))) return `'${text.replaceAll("'", "'\\''")}'`
  const escaped = [...text.toWellFormed()].map((character) => {
    if (/^[\w@%+=:,./ -]$/.test(character)) return character
    return `\\U${character.codePointAt(0)?.toString(16).padStart(8, '0')}`
  })
  return `$'${escaped.join('')}'`
}
