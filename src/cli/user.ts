import type pg from 'pg'
import { z } from 'zod'
import type { CommandResult } from '../cli.ts'
import type { Db } from '../db.ts'
import { problemsOf, rowFilter } from '../ops/filters.ts'
import { createPasswords } from '../ops/passwords.ts'
import { type By, createPerson, findPerson, listPeople, newPersonSchema, type PersonRow, personRoles } from '../ops/people.ts'
import { disablePerson, enablePerson, type PersonChange, setPassword, setRole } from '../ops/person-changes.ts'
import { createSignInLink, signInPath } from '../ops/sign-in-links.ts'
import { timeText } from '../ops/words.ts'
import { systemUser } from './environment.ts'
import { jsonOutput, listHint, mark, type OutputOptions, table, tabSeparated, usageError, visible } from './output.ts'
import type { PasswordInput } from './password-input.ts'

const LINK_MINUTES = 15

export interface UserOptions extends OutputOptions {
  by?: string | undefined
  reason?: string | undefined
}

/** `oncehook user create NAME --role ROLE`: with a password, or with a one-time link alone on stdout. */
export async function createUserCommand(
  db: Db,
  name: string,
  options: UserOptions & { role: string },
  first: { link: { base: string } } | { readPassword: () => Promise<PasswordInput> },
): Promise<CommandResult> {
  const parsed = newPersonSchema.safeParse({ name, role: options.role })
  if (!parsed.success) return usageError(problemsOf(parsed.error))
  // Said before a password is asked for; that nobody has the name is decided by the insert.
  const taken = () => failed(`somebody is named ${visible(parsed.data.name)} already, however it is written`)
  if (await findPerson(db, parsed.data.name)) return taken()
  const given = 'link' in first ? undefined : await first.readPassword()
  if (given && 'problem' in given) return usageError([{ path: 'password', message: given.problem }])

  const passwordHash = given && (await createPasswords().hash(given.password))
  const person = await createPerson(db, { ...parsed.data, passwordHash }, byOf(options))
  if (!person) return taken()
  if ('link' in first) return linkResult(db, person, first.link.base, options)
  return done(`${person.name} can sign in as ${person.role}.`, person, options)
}

/** `oncehook user list`: everybody, those who may not sign in any more too. */
export async function listUsersCommand(
  db: Db,
  options: OutputOptions & { limit?: number | undefined; cursor?: string | undefined },
): Promise<CommandResult> {
  const filter = rowFilter.safeParse({ limit: options.limit?.toString(), cursor: options.cursor })
  if (!filter.success) return usageError(problemsOf(filter.error))
  const page = await listPeople(db, filter.data)
  const stderr =
    options.json || page.people.length > 0
      ? listHint(page.people.length, 'user', page.next_cursor, options)
      : 'Nobody can sign in yet: oncehook user create NAME --role operator\n'
  return { stdout: options.json ? jsonOutput(page) : usersText(page.people, options), stderr, exitCode: 0 }
}

/** `oncehook user disable NAME`: signed out at once, everywhere. */
export const disableUserCommand = (pool: pg.Pool, name: string, options: UserOptions): Promise<CommandResult> =>
  changed(pool, name, options, (id) => disablePerson(pool, id, byOf(options)), [
    'is signed out and can sign in no more.',
    'was disabled before.',
  ])

/** `oncehook user enable NAME`: may sign in again. */
export const enableUserCommand = (pool: pg.Pool, name: string, options: UserOptions): Promise<CommandResult> =>
  changed(pool, name, options, (id) => enablePerson(pool, id, byOf(options)), ['can sign in again.', 'was not disabled.'])

/** `oncehook user role NAME ROLE`: counts from the next request on. */
export async function userRoleCommand(pool: pg.Pool, name: string, given: string, options: UserOptions): Promise<CommandResult> {
  const role = z.enum(personRoles).safeParse(given)
  if (!role.success) return usageError([{ path: 'role', message: `must be ${personRoles.join(' or ')}` }])
  return changed(pool, name, options, (id) => setRole(pool, id, role.data, byOf(options)), [
    `is ${role.data} now.`,
    `was ${role.data} before.`,
  ])
}

/** `oncehook user password NAME`: sets another one, and signs the person out everywhere. */
export async function userPasswordCommand(
  pool: pg.Pool,
  name: string,
  options: UserOptions,
  readPassword: () => Promise<PasswordInput>,
): Promise<CommandResult> {
  const person = await findPerson(pool, name)
  if (!person) return unknown(name)
  const given = await readPassword()
  if ('problem' in given) return usageError([{ path: 'password', message: given.problem }])
  await setPassword(pool, person.id, await createPasswords().hash(given.password), byOf(options))
  return done(`${person.name} has another password and is signed out everywhere.`, person, options)
}

/** `oncehook user link NAME`: an address, alone on stdout, that signs this person in once within 15 minutes. */
export async function userLinkCommand(db: Db, name: string, options: UserOptions & { base: string }): Promise<CommandResult> {
  const person = await findPerson(db, name)
  return person ? linkResult(db, person, options.base, options) : unknown(name)
}

async function linkResult(db: Db, person: PersonRow, base: string, options: UserOptions): Promise<CommandResult> {
  const code = await createSignInLink(db, { person: person.id, minutes: LINK_MINUTES }, byOf(options))
  if (code === undefined) return failed(`${person.name} is disabled: oncehook user enable '${person.name}'`)
  const url = `${base.replace(/\/+$/, '')}${signInPath(code)}`
  if (options.json) return { stdout: jsonOutput({ url }), stderr: '', exitCode: 0 }
  return { stdout: `${url}\n`, stderr: `Signs ${person.name} in once, within ${LINK_MINUTES} minutes.\n`, exitCode: 0 }
}

async function changed(
  pool: pg.Pool,
  name: string,
  options: UserOptions,
  change: (id: string) => Promise<PersonChange>,
  [now, before]: readonly [string, string],
): Promise<CommandResult> {
  const person = await findPerson(pool, name)
  const outcome = person ? await change(person.id) : 'not_found'
  if (!person || outcome === 'not_found') return unknown(name)
  if (outcome === 'last_operator')
    return failed(`${person.name} is the last operator who can sign in; make somebody else one first`)
  return done(`${person.name} ${outcome === 'done' ? now : before}`, (await findPerson(pool, name)) ?? person, options)
}

const byOf = ({ by, reason }: UserOptions): By => ({ actor: by ?? systemUser(), via: 'cli', reason })
const unknown = (name: string) => failed(`nobody is named ${visible(name)}`)
const failed = (text: string): CommandResult => ({ stdout: '', stderr: `oncehook: ${text}\n`, exitCode: 1 })

function done(text: string, person: PersonRow, options: OutputOptions): CommandResult {
  return { stdout: options.json ? jsonOutput(person) : `${mark('good', text, options)}\n`, stderr: '', exitCode: 0 }
}

function usersText(people: readonly PersonRow[], options: OutputOptions): string {
  const wayIn = (person: PersonRow) => (person.disabled_at ? 'disabled' : person.has_password ? 'password' : 'link only')
  if (options.width === undefined) {
    return tabSeparated(
      people.map((person) => [
        person.name,
        person.role,
        wayIn(person),
        person.last_signed_in_at?.toISOString() ?? null,
        person.created_at.toISOString(),
      ]),
    )
  }
  if (people.length === 0) return ''
  const rows = people.map((person) => [
    { text: person.name },
    { text: person.role },
    { text: wayIn(person), ...(person.disabled_at && { tone: 'quiet' as const }) },
    { text: timeText(person.last_signed_in_at, options.zone) },
    { text: timeText(person.created_at, options.zone) },
  ])
  const zone = options.zone ?? 'UTC'
  return table(['NAME', 'ROLE', 'SIGNS IN BY', `LAST TIME (${zone})`, `SINCE (${zone})`], rows, [0], options)
}
