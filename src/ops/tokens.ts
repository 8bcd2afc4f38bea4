import { createHash, randomBytes } from 'node:crypto'
import { z } from 'zod'
import type { Db } from '../db.ts'
import { encodeCursor } from './filters.ts'
import type { By } from './people.ts'

/** `reader` reads; `operator` also decides; `sender` posts sends and reads single ones. */
export const roles = ['reader', 'operator', 'sender'] as const
export type Role = (typeof roles)[number]

export interface NewToken {
  name: string
  role: Role
  expiresAt?: Date | undefined
  /** Who makes it and by which way, for the audit. */
  actor?: string | undefined
  via?: string | undefined
}

export interface TokenRow {
  id: string
  name: string
  role: Role
  created_at: Date
  created_by: string | null
  expires_at: Date | null
  last_used_at: Date | null
  revoked_at: Date | null
  revoked_by: string | null
  revoked_reason: string | null
}

export interface TokenPage {
  tokens: TokenRow[]
  next_cursor: string | null
}

/** What a token is for. */
export const tokenName = z
  .string()
  .trim()
  .min(1)
  .max(200)
  .refine((name) => !/[\p{Cc}\p{Cf}]/u.test(name) && name.isWellFormed(), 'must not contain control characters')
  .meta({ description: 'As the audit names it, after `token:`', override: { pattern: '\\S' } })

/** `90d` or `12h` from now, at most ten years. */
export const tokenLifetime = (now: () => Date) =>
  z
    .string()
    .transform((text, context) => {
      const [, count, unit] = /^([1-9]\d{0,4})([hd])$/.exec(text) ?? []
      const hours = Number(count) * (unit === 'd' ? 24 : 1)
      if (count && hours <= 10 * 366 * 24) return new Date(now().getTime() + hours * 3_600_000)
      context.addIssue({ code: 'custom', message: 'must be like 90d or 12h, at most 3660d' })
      return z.NEVER
    })
    .meta({
      description: 'Hours or days from now: `12h`, `90d`; at most `3660d`. For ever, if left out',
      example: '90d',
      override: { pattern: '^[1-9][0-9]{0,4}[hd]$' },
    })

const COLUMNS = 'id, name, role, created_at, created_by, expires_at, last_used_at, revoked_at, revoked_by, revoked_reason'

/** Makes a token: its row, and the text that can't be read again, as only its hash is kept. Audited. */
export async function issueToken(db: Db, token: NewToken): Promise<TokenRow & { token: string }> {
  const text = `och_${randomBytes(32).toString('base64url')}`
  const row = await insertToken(db, text, token)
  if (!row) throw new Error('a new token was there already')
  return { ...row, token: text }
}

/** As `issueToken`, for whom the text alone is enough. */
export async function createToken(db: Db, token: NewToken): Promise<string> {
  return (await issueToken(db, token)).token
}

/** Makes this very token be known, as the start command's fixed one. A repeat changes nothing and is not audited again. */
export async function ensureToken(db: Db, text: string, token: NewToken): Promise<void> {
  await insertToken(db, text, token)
}

async function insertToken(
  db: Db,
  text: string,
  { name, role, expiresAt, actor = 'system', via = 'cli' }: NewToken,
): Promise<TokenRow | undefined> {
  const { rows } = await db.query<TokenRow>(
    `with created as (
       insert into api_tokens (name, role, token_sha256, expires_at, created_by) values ($1, $2, $3, $4, $5)
       on conflict on constraint api_tokens_once do nothing
       returning ${COLUMNS}
     ), audited as (
       insert into audit_log (actor, via, action, subject, after)
       select $5, $6, 'create_token', 'token:' || id, jsonb_build_object('name', name, 'role', role, 'expires_at', expires_at) from created
     )
     select * from created`,
    [name, role, hashOf(text), expiresAt ?? null, actor, via],
  )
  return rows[0]
}

/** Ends a token at once and for good; the first of two says why. Audited with the change. */
export async function revokeToken(
  db: Db,
  id: string,
  { actor, via, reason }: By & { reason: string },
): Promise<'done' | 'unchanged' | 'not_found'> {
  const { rows } = await db.query<{ revoked: boolean; known: boolean }>(
    `with revoked as (
       update api_tokens set revoked_at = now(), revoked_by = $2, revoked_reason = $4
       where id = $1 and revoked_at is null returning id, name, role
     ), audited as (
       insert into audit_log (actor, via, action, subject, reason, before)
       select $2, $3, 'revoke_token', 'token:' || id, $4, jsonb_build_object('name', name, 'role', role) from revoked
     )
     select exists (select from revoked) as revoked, exists (select from api_tokens where id = $1) as known`,
    [id, actor, via, reason],
  )
  if (rows[0]?.revoked) return 'done'
  return rows[0]?.known ? 'unchanged' : 'not_found'
}

/** One token, without its text. */
export async function findToken(db: Db, id: string): Promise<TokenRow | undefined> {
  const { rows } = await db.query<TokenRow>(`select ${COLUMNS} from api_tokens where id = $1`, [id])
  return rows[0]
}

/** Tokens, the newest first; with a name only those of that name that still work. */
export async function listTokens(
  db: Db,
  { limit, cursor, workingName }: { limit: number; cursor?: [string] | undefined; workingName?: string | undefined },
): Promise<TokenPage> {
  const { rows } = await db.query<TokenRow>(
    `select ${COLUMNS} from api_tokens where ($1::bigint is null or id < $1)
       and ($3::text is null or (name = $3 and revoked_at is null and (expires_at is null or expires_at > now())))
     order by id desc limit $2`,
    [cursor?.[0] ?? null, limit + 1, workingName ?? null],
  )
  const tokens = rows.slice(0, limit)
  const last = tokens.at(-1)
  return { tokens, next_cursor: rows.length > limit && last ? encodeCursor([last.id]) : null }
}

/** Whom a token names; undefined for one that is unknown, expired or revoked. Notes its use, at most once a minute. */
export async function authenticate(db: Db, text: string): Promise<{ name: string; role: Role } | undefined> {
  const { rows } = await db.query<{ name: string; role: Role }>({
    name: 'authenticate',
    text: `with found as (
        select id, name, role from api_tokens
        where token_sha256 = $1 and revoked_at is null and (expires_at is null or expires_at > now())
      ), used as (
        update api_tokens set last_used_at = now() from found
        where api_tokens.id = found.id and (last_used_at is null or last_used_at <= now() - interval '1 minute')
      )
      select name, role from found`,
    values: [hashOf(text)],
  })
  return rows[0]
}

// A plain hash is enough: a token has 256 random bits, so there is nothing to guess.
const hashOf = (text: string): Buffer => createHash('sha256').update(text).digest()
