# sh kcat.sh ADDRESS TOPIC create|produce|consume COUNT
set -eu
address=$1 topic=$2 action=$3

case $action in
create) kcat -b "$address" -L -t "$topic" >/dev/null ;; # it has no other way than asking for a topic
produce)
  awk 'BEGIN { for (i = 0; i < 500; i++) printf "k%d:%d\n", i % 13, i }' |
    kcat -b "$address" -P -t "$topic" -K : -X acks=all -X enable.idempotence=true
  ;;
consume)
  kcat -b "$address" -q -c "$4" -f '%p %o %k %s\n' -X auto.offset.reset=earliest -G "$topic" "$topic"
  ;;
esac
