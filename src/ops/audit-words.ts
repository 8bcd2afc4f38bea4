/** What was done, by the name that the audit keeps of it; a name that isn't here is its own word. */
export const auditWords: Readonly<Record<string, string>> = {
  sent: 'it was sent',
  abandoned: 'not sent, left so',
  retry: 'send it again',
  ask_retry: 'ask for a second person to send it again',
  reopen: 'reopen',
  attach: 'attach a report',
  'not ours': 'the report is not ours',
  reconcile: 'settle by a sending log',
  read_log: 'read a sending log',
  replay: 'replay',
  'stop replay': 'stop a replay',
  'pause sending': 'pause sending',
  'resume sending': 'resume sending',
  'matching auto': 'reports settle by recipient',
  'matching suggest': 'reports only suggest by recipient',
  create_view: 'save a view',
  delete_view: 'delete a view',
  export: 'export a list',
  sign_in: 'sign in',
  sign_in_by_link: 'sign in by a link',
  sign_out: 'sign out',
  sign_out_others: 'sign out elsewhere',
  create_person: 'add a person',
  create_sign_in_link: 'make a sign-in link',
  set_role: 'change a role',
  disable_person: 'let a person in no more',
  enable_person: 'let a person in again',
  set_password: 'set a password',
  create_token: 'make a token',
  revoke_token: 'revoke a token',
}

/** What was done, for people. */
export const auditWord = (action: string): string =>
  (Object.hasOwn(auditWords, action) && auditWords[action]) || action.replaceAll('_', ' ')

/** The name that the audit keeps, of what a person may have read in words; undefined when nothing is called so. */
export const auditAction = (said: string): string | undefined =>
  Object.entries(auditWords).find((names) => names.some((name) => name.toLowerCase() === said.trim().toLowerCase()))?.[0]

/** The names of what may have been meant: those that have a word of what was said, or all. */
export function nearActions(said: string): string[] {
  const wanted = stemsOf(said)
  const near = Object.entries(auditWords).filter((names) => stemsOf(names.join(' ')).some((stem) => wanted.includes(stem)))
  return (near.length > 0 ? near : Object.entries(auditWords)).map(([action]) => action)
}

/** How its words begin, without the short ones, which tell nothing. */
const stemsOf = (text: string): readonly string[] =>
  (text.toLowerCase().match(/\p{L}{4,}/gu) ?? []).map((word) => word.slice(0, 5))
