import { createHash, randomBytes } from 'node:crypto'
import type { Db } from '../db.ts'
import type { By } from './people.ts'

const CODE = /^[\w-]{43}$/

/** The path that a one-time code is used at. */
export const signInPath = (code: string): string => `/ops/sign-in?code=${code}`

/** Whether this could be a one-time code at all. */
export const isCode = (text: string): boolean => CODE.test(text)

/** Makes a code that signs this person in once, within so many minutes; undefined when there is no such person or they are disabled. Audited. */
export async function createSignInLink(
  db: Db,
  { person, minutes }: { person: string; minutes: number },
  { actor, via, reason }: By,
): Promise<string | undefined> {
  const code = randomBytes(32).toString('base64url')
  const { rowCount } = await db.query(
    `with person as (
       select id, name from people where id = $1 and disabled_at is null for share
     ), created as (
       insert into sign_in_links (code_sha256, person, expires_at)
       select $2, id, now() + make_interval(mins => $3) from person returning expires_at
     )
     insert into audit_log (actor, via, action, subject, reason, after)
     select $4, $5, 'create_sign_in_link', 'person:' || name, $6, jsonb_build_object('expires_at', expires_at) from person, created`,
    [person, hashOf(code), minutes, actor, via, reason ?? null],
  )
  return rowCount === 1 ? code : undefined
}

/** Ends a link that nobody has used; a repeat changes nothing. */
export async function endSignInLink(db: Db, code: string): Promise<void> {
  await db.query('delete from sign_in_links where code_sha256 = $1 and used_at is null', [hashOf(code)])
}

/** Whose link it is, as long as it can be used; looking changes nothing. */
export async function readSignInLink(db: Db, code: string): Promise<{ name: string } | undefined> {
  const { rows } = await db.query<{ name: string }>(
    `select name from sign_in_links join people on people.id = sign_in_links.person
     where code_sha256 = $1 and used_at is null and expires_at > now() and disabled_at is null`,
    [hashOf(code)],
  )
  return rows[0]
}

// A plain hash is enough: a code has 256 random bits, so there is nothing to guess.
const hashOf = (text: string): Buffer => createHash('sha256').update(text).digest()
