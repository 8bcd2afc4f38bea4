import type pg from 'pg'
import { inTransaction, type Tx } from '../db.ts'
import type { By, PersonRole } from './people.ts'
import { endSessionsOf } from './sessions.ts'

/** `unchanged`: it was so already. `last_operator`: nobody could manage people any more. */
export type PersonChange = 'done' | 'unchanged' | 'not_found' | 'last_operator'

/** Gives a person another role, with their next request; never takes it from the last operator who may sign in. */
export function setRole(pool: pg.Pool, person: string, role: PersonRole, by: By): Promise<PersonChange> {
  return changePerson(pool, person, { role }, 'set_role', by)
}

/** Lets a person in no more: sessions and links end in the same transaction. Never the last operator. */
export function disablePerson(pool: pg.Pool, person: string, by: By): Promise<PersonChange> {
  return changePerson(pool, person, { isDisabled: true }, 'disable_person', by)
}

/** Lets a disabled person sign in again. */
export function enablePerson(pool: pg.Pool, person: string, by: By): Promise<PersonChange> {
  return changePerson(pool, person, { isDisabled: false }, 'enable_person', by)
}

function changePerson(
  pool: pg.Pool,
  person: string,
  { role, isDisabled }: { role?: PersonRole; isDisabled?: boolean },
  action: string,
  { actor, via, reason }: By,
): Promise<PersonChange> {
  return inTransaction(pool, async (tx) => {
    // One after the other: two operators who disable each other at once would each see the other as the one who stays.
    await tx.query(`select from people where role = 'operator' and disabled_at is null order by id for no key update`)
    const { rowCount } = await tx.query(
      `with old as (
         select id, role, disabled_at, coalesce($2, role) as new_role, coalesce($3, disabled_at is not null) as is_disabled
         from people where id = $1 for no key update
       ), changed as (
         update people set role = new_role,
           disabled_at = case when not is_disabled then null else coalesce(old.disabled_at, clock_timestamp()) end
         from old where people.id = old.id
           and (new_role <> old.role or is_disabled <> (old.disabled_at is not null))
           and ((new_role = 'operator' and not is_disabled) or old.role <> 'operator' or old.disabled_at is not null
             or exists (select from people others where others.id <> $1 and others.role = 'operator' and others.disabled_at is null))
         returning name, old.role as old_role, old.disabled_at is not null as was_disabled, new_role, is_disabled
       )
       insert into audit_log (actor, via, action, subject, reason, before, after)
       select $4, $5, $6, 'person:' || name, $7, jsonb_build_object('role', old_role, 'disabled', was_disabled),
         jsonb_build_object('role', new_role, 'disabled', is_disabled) from changed`,
      [person, role ?? null, isDisabled ?? null, actor, via, action, reason ?? null],
    )
    if (rowCount === 1) {
      if (isDisabled) await endSessionsOf(tx, person)
      return 'done'
    }
    return whyUnchanged(tx, person, { role, isDisabled })
  })
}

async function whyUnchanged(
  tx: Tx,
  person: string,
  wanted: { role: PersonRole | undefined; isDisabled: boolean | undefined },
): Promise<PersonChange> {
  const { rows } = await tx.query<{ role: PersonRole; is_disabled: boolean }>(
    'select role, disabled_at is not null as is_disabled from people where id = $1',
    [person],
  )
  const [row] = rows
  if (!row) return 'not_found'
  const isSo = row.role === (wanted.role ?? row.role) && row.is_disabled === (wanted.isDisabled ?? row.is_disabled)
  return isSo ? 'unchanged' : 'last_operator'
}

/**
 * Gives a person another password and ends their sessions and links, but for the session that is kept. With `wasHash` only if
 * that is still the one before, null for none. False when there is no such person, or the password has been changed meanwhile.
 */
export function setPassword(
  pool: pg.Pool,
  person: string,
  passwordHash: string,
  { actor, via, reason }: By,
  { wasHash, keptToken }: { wasHash?: string | null | undefined; keptToken?: string | undefined } = {},
): Promise<boolean> {
  return inTransaction(pool, async (tx) => {
    const { rowCount } = await tx.query(
      `with changed as (
         update people set password_hash = $2 where id = $1 and ($7 or password_hash is not distinct from $3) returning name
       )
       insert into audit_log (actor, via, action, subject, reason) select $4, $5, 'set_password', 'person:' || name, $6 from changed`,
      [person, passwordHash, wasHash ?? null, actor, via, reason ?? null, wasHash === undefined],
    )
    if (rowCount !== 1) return false
    await endSessionsOf(tx, person, keptToken)
    return true
  })
}
