import { createHash, randomBytes } from 'node:crypto'
import type { Db } from '../db.ts'

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

/** Makes a token and answers it, the only time that it can be read: only its hash is kept. Audited. */
export async function createToken(db: Db, token: NewToken): Promise<string> {
  const text = `och_${randomBytes(32).toString('base64url')}`
  await insertToken(db, text, token)
  return text
}

/** Makes this very token be known, as the start command's fixed one. A repeat changes nothing and is not audited again. */
export async function ensureToken(db: Db, text: string, token: NewToken): Promise<void> {
  await insertToken(db, text, token)
}

async function insertToken(
  db: Db,
  text: string,
  { name, role, expiresAt, actor = 'system', via = 'cli' }: NewToken,
): Promise<void> {
  await db.query(
    `with created as (
       insert into api_tokens (name, role, token_sha256, expires_at) values ($1, $2, $3, $4)
       on conflict on constraint api_tokens_once do nothing
       returning id, name, role, expires_at
     )
     insert into audit_log (actor, via, action, subject, after)
     select $5, $6, 'create_token', 'token:' || id, jsonb_build_object('name', name, 'role', role, 'expires_at', expires_at) from created`,
    [name, role, hashOf(text), expiresAt ?? null, actor, via],
  )
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
