/** The object inside a sample Stripe event (docs.stripe.com/api). Each carries `customer_email`, the few objects too that have no address at Stripe, so that any sample can cause an email. */
export function stripeObject(about: {
  type: string
  eventId: string
  created: number
  email: string
  livemode: boolean
}): Record<string, unknown> {
  const { type, eventId, created, email, livemode } = about
  // Its own object for each event: a follow-up's key is made of the object's ID.
  const suffix = eventId.replace(/^evt_/, '')
  const common = { created, livemode, currency: 'eur', customer: 'cus_Sample', customer_email: email, metadata: {} }
  if (type.startsWith('invoice.')) {
    const isPaid = type === 'invoice.paid' || type === 'invoice.payment_succeeded'
    return {
      id: `in_${suffix}`,
      object: 'invoice',
      ...common,
      number: `INV-${suffix.slice(-8).toUpperCase()}`,
      customer_name: 'Ada Example',
      amount_due: 4200,
      amount_paid: isPaid ? 4200 : 0,
      amount_remaining: isPaid ? 0 : 4200,
      attempt_count: 1,
      hosted_invoice_url: 'https://invoice.example.com/i/sample',
      next_payment_attempt: isPaid ? null : created + 3 * 86_400,
      period_start: created - 30 * 86_400,
      period_end: created,
      status: isPaid ? 'paid' : 'open',
      subscription: 'sub_Sample',
      total: 4200,
    }
  }
  if (type.startsWith('charge.')) {
    const isRefunded = type === 'charge.refunded'
    return {
      id: `ch_${suffix}`,
      object: 'charge',
      ...common,
      amount: 4200,
      amount_refunded: isRefunded ? 4200 : 0,
      billing_details: { email, name: 'Ada Example' },
      paid: true,
      payment_intent: `pi_${suffix}`,
      receipt_email: email,
      refunded: isRefunded,
      status: 'succeeded',
    }
  }
  if (type.startsWith('customer.subscription.')) {
    const isDeleted = type === 'customer.subscription.deleted'
    return {
      id: `sub_${suffix}`,
      object: 'subscription',
      ...common,
      cancel_at_period_end: false,
      canceled_at: isDeleted ? created : null,
      ended_at: isDeleted ? created : null,
      items: {
        object: 'list',
        data: [{ id: 'si_Sample', object: 'subscription_item', current_period_end: created, quantity: 1 }],
      },
      status: isDeleted ? 'canceled' : 'active',
    }
  }
  return { id: `obj_${suffix}`, object: type.split('.').slice(0, -1).join('.') || 'object', ...common, email }
}
