import { z } from 'zod'
import type { CommandResult } from '../cli.ts'
import type { Db } from '../db.ts'
import { reasonSchema } from '../ops/decide-send.ts'
import { problemsOf, readRowId, rowFilter } from '../ops/filters.ts'
import { createToken, listTokens, revokeToken, roles, type TokenRow, tokenLifetime, tokenName } from '../ops/tokens.ts'
import { timeText } from '../ops/words.ts'
import { systemUser } from './environment.ts'
import { jsonOutput, listHint, mark, type OutputOptions, table, tabSeparated, usageError, visible } from './output.ts'

const newToken = z.object({
  role: z.enum(roles),
  name: tokenName,
  expires: tokenLifetime(() => new Date()).optional(),
})

/** `oncehook token create`: the token alone on stdout, on one line. It can't be shown again. */
export async function createTokenCommand(
  db: Db,
  options: { role: string; name: string; expires?: string | undefined; by?: string | undefined },
): Promise<CommandResult> {
  const parsed = newToken.safeParse(options)
  if (!parsed.success) return usageError(problemsOf(parsed.error))
  const { role, name, expires: expiresAt } = parsed.data
  const token = await createToken(db, { role, name, expiresAt, actor: options.by ?? systemUser(), via: 'cli' })
  return { stdout: `${token}\n`, stderr: '', exitCode: 0 }
}

/** `oncehook token list`: the newest first, without the tokens themselves, which nobody can read again. */
export async function listTokensCommand(
  db: Db,
  options: OutputOptions & { limit?: number | undefined; cursor?: string | undefined },
): Promise<CommandResult> {
  const filter = rowFilter.safeParse({ limit: options.limit?.toString(), cursor: options.cursor })
  if (!filter.success) return usageError(problemsOf(filter.error))
  const page = await listTokens(db, filter.data)
  const stderr = listHint(page.tokens.length, 'token', page.next_cursor, options)
  return { stdout: options.json ? jsonOutput(page) : tokensText(page.tokens, options), stderr, exitCode: 0 }
}

/** `oncehook token revoke ID|NAME`: it is refused from the next request on. A name that several have is not guessed at. */
export async function revokeTokenCommand(
  db: Db,
  which: string,
  options: OutputOptions & { reason: string; by?: string | undefined },
): Promise<CommandResult> {
  const reason = reasonSchema.safeParse(options.reason)
  if (!reason.success) return usageError(reason.error.issues.map(({ message }) => ({ path: 'reason', message })))
  const failed = (text: string) => ({ stdout: '', stderr: `oncehook: ${text}\n`, exitCode: 1 })
  let id = readRowId(which)
  if (id === undefined) {
    const { tokens } = await listTokens(db, { limit: 10, workingName: which })
    if (tokens.length > 1)
      return failed(
        `several tokens are named ${visible(which)}; say which by its ID: ${tokens.map((token) => token.id).join(', ')}`,
      )
    id = tokens[0]?.id
  }
  const by = { actor: options.by ?? systemUser(), via: 'cli', reason: reason.data }
  const outcome = id === undefined ? 'not_found' : await revokeToken(db, id, by)
  if (outcome === 'not_found') return failed(`no token that works is named ${visible(which)}, or has that ID`)
  if (options.json) return { stdout: jsonOutput({ id, outcome }), stderr: '', exitCode: 0 }
  const text = outcome === 'done' ? `Token ${id} is revoked.` : `Token ${id} was revoked before.`
  return { stdout: `${mark('good', text, options)}\n`, stderr: '', exitCode: 0 }
}

function tokensText(tokens: readonly TokenRow[], options: OutputOptions): string {
  if (options.width === undefined) {
    const iso = (at: Date | null) => at?.toISOString() ?? null
    return tabSeparated(
      tokens.map((token) => [
        token.id,
        token.name,
        token.role,
        iso(token.created_at),
        token.created_by,
        iso(token.last_used_at),
        iso(token.expires_at),
        iso(token.revoked_at),
        token.revoked_reason,
      ]),
    )
  }
  if (tokens.length === 0) return ''
  const at = (time: Date | null) => ({ text: timeText(time, options.zone) })
  const rows = tokens.map((token) => [
    { text: token.id, isFigure: true },
    { text: token.name },
    { text: token.role },
    at(token.last_used_at),
    at(token.expires_at),
    token.revoked_at ? { text: `revoked: ${token.revoked_reason ?? ''}`, tone: 'quiet' as const } : { text: '' },
  ])
  const zone = options.zone ?? 'UTC'
  return table(['ID', 'NAME', 'ROLE', `LAST USED (${zone})`, `EXPIRES (${zone})`, ''], rows, [5, 1], options)
}
