import type pg from 'pg'
import type { Db } from '../db.ts'
import type { Passwords } from './passwords.ts'
import { personName } from './people.ts'
import { setPassword } from './person-changes.ts'
import { type Session, startSession } from './sessions.ts'

/** How many passwords may be tried within 15 minutes. */
const MOST_TRIES = { address: 30, name: 10 }
const TRIES_SECONDS = 15 * 60
/** So long after a one-time link a password may be set without the one before. */
const RESET_WITHIN_MS = 3_600_000
const MOST_CHARACTERS = 1_000

export interface SignInDeps {
  pool: pg.Pool
  passwords: Passwords
}

interface Throttled {
  outcome: 'throttled'
  retryAfterSeconds: number
}

/** `refused`: unknown name, wrong password, none at all or disabled; nobody learns which. */
export type SignedIn = { outcome: 'signed_in'; token: string } | { outcome: 'refused' } | Throttled

/** Signs in by name and password. Whatever the name, the same work is done for the same answer. */
export async function signIn(
  { pool, passwords }: SignInDeps,
  given: { name: string; password: string; address: string },
): Promise<SignedIn> {
  // What can't be anybody's name is as one that nobody has.
  const name = personName.safeParse(given.name).data ?? ''
  const throttled = await countTry(pool, name, given.address)
  if (throttled) return throttled

  const { rows } = await pool.query<{ id: string; password_hash: string | null }>(
    'select id, password_hash from people where lower(name) = lower($1) and disabled_at is null',
    [name],
  )
  const [person] = rows
  const passwordHash = person?.password_hash ?? undefined
  const { isRight, newHash } = await passwords.check(given.password.slice(0, MOST_CHARACTERS), passwordHash)
  if (!isRight || !person || passwordHash === undefined) return { outcome: 'refused' }

  const token = await startSession(pool, { person: person.id, passwordHash, newPasswordHash: newHash })
  if (token === undefined) return { outcome: 'refused' }
  await forgetTry(pool, name, given.address)
  return { outcome: 'signed_in', token }
}

/** Whether this session must say the password before to set another one. */
export const mustSayPassword = (session: Session, hasPassword: boolean, now: Date): boolean =>
  hasPassword && !(session.startedBy === 'link' && now.getTime() - session.startedAt.getTime() < RESET_WITHIN_MS)

/** Sets the own password and signs the person out everywhere else. `changed`: somebody else has set another one meanwhile. */
export async function setOwnPassword(
  { pool, passwords }: SignInDeps,
  session: Session,
  given: { token: string; current: string; next: string; address: string; now: Date },
): Promise<{ outcome: 'done' } | { outcome: 'refused' } | { outcome: 'changed' } | Throttled> {
  const { id, name } = session.person
  const { rows } = await pool.query<{ password_hash: string | null }>('select password_hash from people where id = $1', [id])
  const wasHash = rows[0]?.password_hash ?? undefined
  if (mustSayPassword(session, wasHash !== undefined, given.now)) {
    const throttled = await countTry(pool, name, given.address)
    if (throttled) return throttled
    const { isRight } = await passwords.check(given.current.slice(0, MOST_CHARACTERS), wasHash)
    if (!isRight) return { outcome: 'refused' }
    await forgetTry(pool, name, given.address)
  }
  const hash = await passwords.hash(given.next)
  const by = { actor: `person:${name}`, via: 'page' }
  const isSet = await setPassword(pool, id, hash, by, { wasHash: wasHash ?? null, keptToken: given.token })
  return { outcome: isSet ? 'done' : 'changed' }
}

/**
 * Counts a try before it is made, so that tries at once count too; answers when no more may be made for now. In the database, as
 * all processes must count together. Tries from an address that has used up its own don't count for the name.
 */
async function countTry(db: Db, name: string, address: string): Promise<Throttled | undefined> {
  const { rows } = await db.query<{ is_counted: boolean; wait: number }>(
    `with address as (
       insert into sign_in_attempts as held (kind, subject_sha256, tries)
       values ('address', sha256(convert_to($2, 'UTF8')), 1)
       on conflict (kind, subject_sha256) do update set
         tries = case when held.since <= now() - make_interval(secs => $3) then 1 else held.tries + 1 end,
         since = case when held.since <= now() - make_interval(secs => $3) then now() else held.since end
       where held.since <= now() - make_interval(secs => $3) or held.tries < $4
       returning 1
     ), name as (
       insert into sign_in_attempts as held (kind, subject_sha256, tries)
       select 'name', sha256(convert_to(lower($1), 'UTF8')), 1 from address
       on conflict (kind, subject_sha256) do update set
         tries = case when held.since <= now() - make_interval(secs => $3) then 1 else held.tries + 1 end,
         since = case when held.since <= now() - make_interval(secs => $3) then now() else held.since end
       where held.since <= now() - make_interval(secs => $3) or held.tries < $5
       returning 1
     )
     select exists (select from name) as is_counted, greatest(1, least($3, coalesce((
       select ceil(extract(epoch from since - now()) + $3) from sign_in_attempts
       where (kind = 'address' and subject_sha256 = sha256(convert_to($2, 'UTF8')) and tries >= $4)
          or (kind = 'name' and subject_sha256 = sha256(convert_to(lower($1), 'UTF8')) and tries >= $5)
       order by since desc limit 1), $3)))::int as wait`,
    [name, address, TRIES_SECONDS, MOST_TRIES.address, MOST_TRIES.name],
  )
  const [row] = rows
  return row?.is_counted ? undefined : { outcome: 'throttled', retryAfterSeconds: row?.wait ?? TRIES_SECONDS }
}

/** A try that was right doesn't count, and those before it were the person's own slips. */
async function forgetTry(db: Db, name: string, address: string): Promise<void> {
  await db.query(`delete from sign_in_attempts where kind = 'name' and subject_sha256 = sha256(convert_to(lower($1), 'UTF8'))`, [
    name,
  ])
  await db.query(
    `update sign_in_attempts set tries = tries - 1 where kind = 'address' and subject_sha256 = sha256(convert_to($1, 'UTF8')) and tries > 0`,
    [address],
  )
}
