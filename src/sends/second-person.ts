import type { Db } from '../db.ts'
import { byPerson } from './lifecycle.ts'

// Who counts where a resend takes two people.

/** Of an actor as `byPerson` names it: the operator who is meant. None for a program, nor for who isn't let in any more. */
export const operatorNamed = (actor: string) =>
  `select id, 'person:' || name as actor from people where role = 'operator' and disabled_at is null
     and ${actor} ^@ 'person:' and lower(name) = lower(btrim(substr(${actor}, 8)))`

/** Each operator who wants the send of this key again, as it is in this version. Void once the send has changed, or who asked is no operator any more. */
export const asksFor = (key: string, version: string) =>
  `select asked.at, asked.actor, asked.reason, asker.id as asker from audit_log asked join people asker on asked.actor = 'person:' || asker.name
   where asked.subject = 'send:' || ${key} and asked.action = 'ask_retry' and asked.after ->> 'version' = (${version})::text
     and asker.role = 'operator' and asker.disabled_at is null`

/** Under whose name it is kept that this actor asks for a resend, or says so too; undefined if they count for nobody. */
export async function findOperator(db: Db, actor: string): Promise<string | undefined> {
  const { rows } = await db.query<{ actor: string }>(operatorNamed('$1::text'), [byPerson(actor)])
  return rows[0]?.actor
}

export interface Ask {
  at: Date
  actor: string
  reason: string
}

/** Who wants this version of a send again, the first one first. */
export async function findAsks(db: Db, key: string, version: number): Promise<Ask[]> {
  const { rows } = await db.query<Ask>(`select at, actor, reason from (${asksFor('$1', '$2::int')}) asks order by at, asker`, [
    key,
    version,
  ])
  return rows
}
