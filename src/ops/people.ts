import { z } from 'zod'
import type { Db } from '../db.ts'
import { encodeCursor } from './filters.ts'

/** `reader` reads; `operator` also decides, and manages tokens and people. */
export const personRoles = ['reader', 'operator'] as const
export type PersonRole = (typeof personRoles)[number]

/** Who changes something and by which way, for the audit; the page and the API ask for a reason where one is needed. */
export interface By {
  actor: string
  via: string
  reason?: string | undefined
}

export interface PersonRow {
  id: string
  name: string
  role: PersonRole
  /** Without one the person signs in by a one-time link only. */
  has_password: boolean
  created_at: Date
  disabled_at: Date | null
  last_signed_in_at: Date | null
}

export interface PeoplePage {
  people: PersonRow[]
  next_cursor: string | null
}

/** A person's name: what is typed to sign in, and what the audit calls them. */
export const personName = z
  .string()
  .trim()
  .normalize('NFC')
  .min(1)
  .max(100)
  .regex(/^[\p{L}\p{M}\p{N}._@+-]+( [\p{L}\p{M}\p{N}._@+-]+)*$/u, 'must be of letters, digits, single spaces and . _ @ + -')

export const newPersonSchema = z.strictObject({ name: personName, role: z.enum(personRoles) })

const COLUMNS = 'id, name, role, password_hash is not null as has_password, created_at, disabled_at, last_signed_in_at'

/** Adds a person; undefined when somebody has the name, however it is written. Without a password a one-time link lets them in. */
export async function createPerson(
  db: Db,
  { name, role, passwordHash }: z.output<typeof newPersonSchema> & { passwordHash?: string | undefined },
  { actor, via, reason }: By,
): Promise<PersonRow | undefined> {
  const { rows } = await db.query<PersonRow>(
    `with created as (
       insert into people (name, role, password_hash) values ($1, $2, $3) on conflict (lower(name)) do nothing returning *
     ), audited as (
       insert into audit_log (actor, via, action, subject, reason, after)
       select $4, $5, 'create_person', 'person:' || name, $6, jsonb_build_object('role', role, 'has_password', password_hash is not null)
       from created
     )
     select ${COLUMNS} from created`,
    [name, role, passwordHash ?? null, actor, via, reason ?? null],
  )
  return rows[0]
}

/** An operator for a service that nobody can sign in to yet: made once, named `operator`; else the operator that has been there longest. */
export async function ensureFirstOperator(db: Db): Promise<PersonRow | undefined> {
  await db.query(
    `with created as (
       insert into people (name, role) select 'operator', 'operator' where not exists (select from people)
       on conflict (lower(name)) do nothing returning name
     )
     insert into audit_log (actor, via, action, subject, after)
     select 'system', 'cli', 'create_person', 'person:' || name, jsonb_build_object('role', 'operator', 'has_password', false) from created`,
  )
  const { rows } = await db.query<PersonRow>(
    `select ${COLUMNS} from people where role = 'operator' and disabled_at is null order by id limit 1`,
  )
  return rows[0]
}

/** The person of this name, however it is written. */
export async function findPerson(db: Db, name: string): Promise<PersonRow | undefined> {
  const { rows } = await db.query<PersonRow>(`select ${COLUMNS} from people where lower(name) = lower($1)`, [name])
  return rows[0]
}

/** One person. */
export async function readPerson(db: Db, id: string): Promise<PersonRow | undefined> {
  const { rows } = await db.query<PersonRow>(`select ${COLUMNS} from people where id = $1`, [id])
  return rows[0]
}

/** People, the first one first. */
export async function listPeople(
  db: Db,
  { limit, cursor }: { limit: number; cursor?: [string] | undefined },
): Promise<PeoplePage> {
  const { rows } = await db.query<PersonRow>(
    `select ${COLUMNS} from people where ($1::bigint is null or id > $1) order by id limit $2`,
    [cursor?.[0] ?? null, limit + 1],
  )
  const people = rows.slice(0, limit)
  const last = people.at(-1)
  return { people, next_cursor: rows.length > limit && last ? encodeCursor([last.id]) : null }
}

/** Keeps how a person wants the page. Not audited: it changes nothing for anybody else. */
export async function saveSettings(db: Db, person: string, settings: PersonSettings): Promise<void> {
  await db.query('update people set settings = $2 where id = $1', [person, settings])
}

const zone = z.string().max(64).refine(isZone, 'must be a time zone such as Europe/Berlin')

/** How a person wants the page. */
export const personSettings = z.strictObject({
  theme: z.enum(['system', 'light', 'dark']),
  timeZone: zone,
  shortcuts: z.boolean(),
})
export type PersonSettings = z.infer<typeof personSettings>

const storedSettings = z.object({
  theme: personSettings.shape.theme.catch('system'),
  timeZone: zone.catch('UTC'),
  shortcuts: z.boolean().catch(true),
})

/** Stored settings as they are meant; what is missing or can't be used any more is as for a new person. */
export const settingsOf = (stored: unknown): PersonSettings => storedSettings.parse(stored)

function isZone(name: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone: name })
    return true
  } catch {
    return false
  }
}
