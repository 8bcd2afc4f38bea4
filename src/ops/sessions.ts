import { createHash, randomBytes } from 'node:crypto'
import type { Db, Tx } from '../db.ts'
import { type PersonRole, type PersonSettings, settingsOf } from './people.ts'

/** A person who is signed in, as of this moment: role and settings are read with each request. */
export interface Session {
  person: { id: string; name: string; role: PersonRole; settings: PersonSettings }
  /** By a one-time link the person may set a password without the one before. */
  startedBy: 'password' | 'link'
  startedAt: Date
  endsAt: Date
}

export interface OwnSession {
  started_at: Date
  last_seen_at: Date
  ends_at: Date
  started_by: 'password' | 'link'
  is_this: boolean
}

const SESSION_SECONDS = 7 * 86_400
const MOST_SHOWN = 50

/** Starts a session by a password that was just checked; undefined when the person has been disabled or has got another password meanwhile. */
export async function startSession(
  db: Db,
  { person, passwordHash, newPasswordHash }: { person: string; passwordHash: string; newPasswordHash?: string | undefined },
): Promise<string | undefined> {
  const token = newToken()
  // The row of the person is taken first: whoever ends the sessions of a person takes it too.
  const { rowCount } = await db.query(
    `with person as (
       update people set last_signed_in_at = now(), password_hash = coalesce($4, password_hash)
       where id = $1 and disabled_at is null and password_hash = $2 returning id, name
     ), started as (
       insert into sessions (token_sha256, person, started_by, expires_at)
       select $3, id, 'password', now() + make_interval(secs => $5) from person returning person
     )
     insert into audit_log (actor, via, action, subject) select 'person:' || name, 'page', 'sign_in', 'person:' || name
     from person join started on started.person = person.id`,
    [person, passwordHash, hashOf(token), newPasswordHash ?? null, SESSION_SECONDS],
  )
  return rowCount === 1 ? token : undefined
}

/** Starts a session by a one-time link and uses the link up; undefined when it is unknown, used, too old or of a disabled person. */
export async function startSessionByLink(db: Db, code: string): Promise<string | undefined> {
  const token = newToken()
  const { rowCount } = await db.query(
    `with used as (
       update sign_in_links set used_at = now() where code_sha256 = $1 and used_at is null and expires_at > now() returning person
     ), person as (
       update people set last_signed_in_at = now() from used
       where people.id = used.person and disabled_at is null returning people.id, name
     ), started as (
       insert into sessions (token_sha256, person, started_by, expires_at)
       select $2, id, 'link', now() + make_interval(secs => $3) from person returning person
     )
     insert into audit_log (actor, via, action, subject) select 'person:' || name, 'page', 'sign_in_by_link', 'person:' || name
     from person join started on started.person = person.id`,
    [hashOf(code), hashOf(token), SESSION_SECONDS],
  )
  return rowCount === 1 ? token : undefined
}

/**
 * Who is signed in by this token: undefined after 12 hours without a request, 7 days in all, a sign-out, or once disabled. Notes its use,
 * at most once a minute, unless it is only a page that refreshes itself.
 */
export async function readSession(db: Db, token: string, { isUse = true } = {}): Promise<Session | undefined> {
  const { rows } = await db.query<{
    id: string
    name: string
    role: PersonRole
    settings: unknown
    started_by: Session['startedBy']
    created_at: Date
    expires_at: Date
  }>({
    name: 'read-session',
    text: `with found as (
        select token_sha256, people.id, name, role, settings, started_by, sessions.created_at, expires_at
        from sessions join people on people.id = sessions.person
        where token_sha256 = $1 and expires_at > now() and last_seen_at > now() - interval '12 hours' and disabled_at is null
      ), seen as (
        update sessions set last_seen_at = now() from found
        where $2 and sessions.token_sha256 = found.token_sha256 and last_seen_at <= now() - interval '1 minute'
      )
      select * from found`,
    values: [hashOf(token), isUse],
  })
  const [row] = rows
  if (!row) return undefined
  const { id, name, role, settings, started_by, created_at, expires_at } = row
  const person = { id, name, role, settings: settingsOf(settings) }
  return { person, startedBy: started_by, startedAt: created_at, endsAt: expires_at }
}

/** Signs out: the token names nobody from then on. A repeat changes nothing. */
export async function endSession(db: Db, token: string): Promise<void> {
  await db.query(
    `with ended as (delete from sessions where token_sha256 = $1 returning person)
     insert into audit_log (actor, via, action, subject)
     select 'person:' || name, 'page', 'sign_out', 'person:' || name from ended join people on people.id = ended.person`,
    [hashOf(token)],
  )
}

/** Signs the person of this session out everywhere else; says how many sessions that ended. */
export async function endOtherSessions(db: Db, token: string): Promise<number> {
  const { rows } = await db.query<{ ended: number }>(
    `with mine as (
       select person, name from sessions join people on people.id = sessions.person where token_sha256 = $1
     ), ended as (
       delete from sessions using mine where sessions.person = mine.person and token_sha256 <> $1 returning 1
     ), audited as (
       insert into audit_log (actor, via, action, subject, after)
       select 'person:' || name, 'page', 'sign_out_others', 'person:' || name, jsonb_build_object('sessions', (select count(*) from ended))
       from mine where exists (select from ended)
     )
     select count(*)::int as ended from ended`,
    [hashOf(token)],
  )
  return rows[0]?.ended ?? 0
}

/** Ends the sessions and unused links of a person, whose row the transaction has taken: nobody can sign in meanwhile. */
export async function endSessionsOf(tx: Tx, person: string, exceptToken?: string): Promise<void> {
  await tx.query('delete from sessions where person = $1 and ($2::bytea is null or token_sha256 <> $2)', [
    person,
    exceptToken === undefined ? null : hashOf(exceptToken),
  ])
  await tx.query('delete from sign_in_links where person = $1 and used_at is null', [person])
}

/** The sessions of the person of this one, the latest first. */
export async function listOwnSessions(db: Db, token: string): Promise<OwnSession[]> {
  const { rows } = await db.query<OwnSession>(
    `select created_at as started_at, last_seen_at, expires_at as ends_at, started_by, token_sha256 = $1 as is_this
     from sessions where person = (select person from sessions where token_sha256 = $1)
       and expires_at > now() and last_seen_at > now() - interval '12 hours'
     order by created_at desc, token_sha256 limit $2`,
    [hashOf(token), MOST_SHOWN],
  )
  return rows
}

/** Deletes sessions and links that nobody can use any more, and tries that no longer count. */
export async function forgetOldSignIns(db: Db): Promise<number> {
  const { rows } = await db.query<{ forgotten: number }>(
    `with gone as (delete from sessions where expires_at <= now() or last_seen_at <= now() - interval '12 hours' returning 1),
       links as (delete from sign_in_links where expires_at <= now() - interval '1 day' returning 1),
       tries as (delete from sign_in_attempts where since <= now() - interval '15 minutes' returning 1)
     select ((select count(*) from gone) + (select count(*) from links) + (select count(*) from tries))::int as forgotten`,
  )
  return rows[0]?.forgotten ?? 0
}

/** The cookie's name: over HTTPS one that no other host and no plain HTTP can set. */
const cookieName = (isSecure: boolean) => (isSecure ? '__Host-oncehook' : 'oncehook')

/** The value of a `Set-Cookie` header that signs in. It has no end of its own: the database knows it, and the browser forgets it when closed. */
export function sessionCookie(token: string, isSecure: boolean): string {
  return `${cookieName(isSecure)}=${token}; Path=/; HttpOnly; SameSite=Lax${isSecure ? '; Secure' : ''}`
}

/** The value of a `Set-Cookie` header that signs out. */
export function endedCookie(isSecure: boolean): string {
  return `${sessionCookie('', isSecure)}; Max-Age=0`
}

/** The session's token in a `Cookie` header; undefined when there is none that could be one. */
export function tokenOfCookies(header: string | undefined, isSecure: boolean): string | undefined {
  const given = (header ?? '').split(';').map((pair) => pair.trim())
  const prefix = `${cookieName(isSecure)}=`
  const value = given.find((pair) => pair.startsWith(prefix))?.slice(prefix.length)
  return value !== undefined && /^[\w-]{43}$/.test(value) ? value : undefined
}

const newToken = (): string => randomBytes(32).toString('base64url')

// A plain hash is enough: a token has 256 random bits, so there is nothing to guess.
const hashOf = (text: string): Buffer => createHash('sha256').update(text).digest()
